"""Serve a confidence with each reply: a proxy before a vLLM server that writes hidden states.

bench head export heads/.../pik--fixed--s0 exported
python serve_confidence.py exported http://127.0.0.1:8000 --port 8001

It needs Python with numpy and safetensors, and the folder into which vLLM writes. Each choice of a reply gets the
fields `confidence` and `trusted` (null without a guard in the head). After the reply, prompt and answer are sent again
as one prompt, of which vLLM writes the states that the head reads: one pass more, without a new token to generate.
"""

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # past HTTP_PROXY, which would read questions


def ask(path, key, body=None):
    """Return vLLM's reply in JSON; `key` is the header Authorization of who asks."""
    data, headers = body and json.dumps(body).encode(), {"Content-Type": "application/json", "Authorization": key or ""}
    request = urllib.request.Request(VLLM + path, data, headers)  # noqa: S310
    with DIRECT.open(request) as reply:
        return json.loads(reply.read() or b"{}")


def read_states(path):
    """Return the states of a file that vLLM wrote, (rows, layers, width) float32; numpy alone can't read bfloat16."""
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    about = json.loads(content[8:begin])["hidden_states"]
    raw = np.frombuffer(content, np.uint8)[slice(*(begin + offset for offset in about["data_offsets"]))]
    wide = (raw.view("<u2").astype("<u4") << 16).view("<f4") if about["dtype"] == "BF16" else raw
    values = wide.view({"BF16": "<f4", "F32": "<f4", "F16": "<f2"}[about["dtype"]])
    return values.reshape(about["shape"]).astype(np.float32)


def confidence_of(model, prompt, answer, key):
    """Return the confidence in an answer, from the token ids of prompt and answer."""
    if not answer:
        return head.HEAD["empty"]
    rows = head.rows(len(prompt), len(answer))
    body = {"model": model, "prompt": [prompt + answer], "max_tokens": 1, "kv_transfer_params": {"rows": rows}}
    told = ask("/v1/completions", key, body).get("kv_transfer_params") or {}
    if head.LAYER not in told.get("layers", ()) or "hidden_states_path" not in told:
        raise OSError(f"vLLM writes states of layers {told.get('layers')}; start it with layer {head.LAYER}")
    path, end = Path(told["hidden_states_path"]), time.monotonic() + 60
    while not path.is_file():
        if path.with_suffix(".error").is_file() or time.monotonic() > end:
            raise OSError(f"vLLM did not write {path}: is the disk full, is it this machine's folder?")
        time.sleep(0.002)
    states = read_states(path)[:, told["layers"].index(head.LAYER)]
    path.unlink()
    return head.confidence(states, unnormed=True)


class Proxy(BaseHTTPRequestHandler):
    """Hands requests on to vLLM, and adds the confidence to replies."""

    def do_GET(self):
        """Hand a request on."""
        self.answer(lambda: ask(self.path, self.headers["Authorization"]))

    def do_POST(self):
        """Hand a request on, and add the confidence to each choice of the reply."""
        self.answer(lambda: self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

    def reply(self, body):
        """Return vLLM's reply with confidences."""
        if body.get("stream"):
            raise ValueError("the confidence is known after the reply: ask without stream")
        if self.path.rpartition("/")[2] in {"responses", "messages"}:
            raise ValueError("replies of this kind get no confidence: ask /v1/chat/completions or /v1/completions")
        key = self.headers["Authorization"]
        reply = ask(self.path, key, {**body, "return_token_ids": True})
        prompt = reply.pop("prompt_token_ids", None)  # of a chat; a completion has it in each choice
        for choice in reply.get("choices", ()):
            ids, own = choice.pop("token_ids"), choice.pop("prompt_token_ids", None)
            if choice["finish_reason"] in {"stop", "tool_calls"} and not isinstance(choice.get("stop_reason"), str):
                ids = ids[:-1]  # without the end token, as heads are trained
            choice["confidence"] = confidence_of(reply["model"], prompt or own, ids, key)
            choice["trusted"] = head.trusted(choice["confidence"])
        return reply

    def answer(self, reply_of):
        """Send a reply, or why there is none."""
        try:
            status, content = 200, json.dumps(reply_of()).encode()
        except urllib.error.HTTPError as error:
            status, content = error.code, error.read()
        except (OSError, LookupError, TypeError, ValueError) as error:
            status = 400 if isinstance(error, ValueError) else 502
            content = json.dumps({"error": {"message": str(error)}}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("head", help="folder that bench head export wrote")
    parser.add_argument("vllm", help="address of vLLM's server, such as http://127.0.0.1:8000")
    parser.add_argument("--port", type=int, default=8001)
    arguments = parser.parse_args()
    VLLM = arguments.vllm.rstrip("/").removesuffix("/v1")
    sys.path.insert(0, arguments.head)
    import confidence as head

    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Proxy)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)  # noqa: T201
    server.serve_forever()
