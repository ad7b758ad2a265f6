"""`bench doctor`: checks Python, packages, accelerator, memory, Hub and folders of this machine.

Programs run with a time limit. Libraries are imported in a child process, because an import may crash.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.api import UserError
from bench.api.options import RUNS
from bench.cli.commands import AsJson
from bench.cli.finding import Finding, State, free_memory
from bench.cli.options import split_list
from bench.results import provenance
from bench.store.disk_cache import cache_folder
from bench.store.processes import describe_exit, kill_process_group

_MIN_PYTHON = (3, 11)
_TORCH = """
import json, torch
cuda = torch.cuda.is_available()
mps = getattr(torch.backends, "mps", None)
cards = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())] if cuda else []
print(json.dumps({
    "version": torch.__version__, "cuda": torch.version.cuda, "hip": getattr(torch.version, "hip", None),
    "cards": [[card.name, card.total_memory] for card in cards],
    "mps": bool(mps and mps.is_available()), "bf16": bool(cuda and torch.cuda.is_bf16_supported()),
    "computes": float((torch.ones(8, 8, device="cuda" if cuda else "cpu") @ torch.ones(8, 8).to(
        "cuda" if cuda else "cpu")).sum()) == 512.0,
}))
"""
_DRIVER_FILE = Path("/proc/driver/nvidia/version")
_OTHER_TORCH = (
    "install torch for the CUDA version that nvidia-smi names or an older one (https://pytorch.org/get-started), or a"
    " newer driver; where these fit, look at CUDA_VISIBLE_DEVICES and the rights on /dev/nvidia*"
)
_GB = 1e9
IMPORT_S = 120.0
"""Time limit in seconds for the import of a library; a first import from a slow disk takes a minute."""
_MAX_MESSAGE = 300
_HUB_S = 5.0
"""Time limit in seconds for requests to the Hub, including the name lookup."""
_LOW_MEMORY = 4e9
"""Free memory, in bytes, below which there is hardly room for the libraries and a small model."""
_TRUE_VALUES = {"1", "ON", "YES", "TRUE"}
"""Values, in upper case, that the Hub's library takes as true in an environment variable."""
_LOW_SPACE, _NO_SPACE = 10e9, 2e8
"""Free disk space, in bytes, below which a long run may fail, and below which no run can start."""


MARKS = {State.OK: "ok", State.NOTE: "note", State.BAD: "stops a run"}
"""State -> word that is printed for it."""
Results = Annotated[Path, typer.Option("--out", help="Folder of results that runs will write.")]


def doctor(
    *,
    model: Annotated[
        str | None, typer.Option(help="Also say what this model is and needs; no weights are loaded.")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Tokenizer of a GGUF file: Hub id or folder.")] = None,
    served: Annotated[str | None, typer.Option(help="Name of the model on the server that --model names.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Also say whether --model can answer this task.")] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Method or group that the server of --model is to serve. Default: all.")
    ] = None,
    out: Results = RUNS,
    as_json: AsJson = False,
) -> None:
    """Say whether a run can start on this machine, and what to mend; the exit code is 1 if no run can start.

    With --model also what a model is and needs: files to fetch, architecture, memory, tokenizer, chat template; of a
    server, how it can be read and which methods it serves; of vLLM's, the command with which it writes hidden states.
    """
    from bench.cli.printing import print_json, print_line

    if model is None and (tokenizer or task or served or method):
        raise UserError("--task, --tokenizer, --served, --method: expected --model as well, the model that they are of")
    from bench.model.specs import is_url

    if method and not is_url(model or ""):
        raise UserError(
            "--method: expected --model to be the URL of a server, whose methods are looked at; leave it out"
        )
    findings = run_checks(out)
    if model is not None and all(finding.state is not State.BAD for finding in findings):
        from bench.cli.doctor_model import check_model

        findings += check_model(model, tokenizer, split_list(task or ()), served, method or ())
    is_bad = any(finding.state is State.BAD for finding in findings)
    if as_json:
        print_json({"can_run": not is_bad, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            print_line(f"{MARKS[finding.state]:<12} {finding.about + ':':<14} {finding.what}")
            if finding.fix:
                print_line(f"{'':<28}-> {finding.fix}")
        print_line("No run can start here; mend what stops it." if is_bad else "A run can start on this machine.")
    raise typer.Exit(1 if is_bad else 0)


def run_checks(out: Path) -> list[Finding]:
    """Run all checks of this machine concurrently, and return their findings in the order of the checks.

    Args:
        out: the results folder.
    """
    checks: list[Callable[[], Iterator[Finding]]] = [
        check_python, check_packages, other_bench, check_torch, check_libraries, check_memory,
        lambda: check_folders(out), check_hub,
    ]  # fmt: skip

    def findings(check: Callable[[], Iterator[Finding]]) -> list[Finding]:
        try:
            return list(check())
        except Exception as error:  # noqa: BLE001 - a failed check must not hide the others
            name, what = getattr(check, "__name__", "check").strip("<>"), f"{type(error).__name__}: {error}"
            return [Finding(name, State.NOTE, f"could not be examined ({what})")]

    with ThreadPoolExecutor(len(checks)) as pool:
        return [finding for some in pool.map(findings, checks) for finding in some]


# --- Python and what is installed in it -------------------------------------------------------------------------------


def check_python() -> Iterator[Finding]:
    """Check that the version of Python is supported."""
    version_text = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info >= _MIN_PYTHON:
        yield Finding("Python", State.OK, version_text)
    else:
        least = ".".join(map(str, _MIN_PYTHON))
        yield Finding("Python", State.BAD, f"{version_text}, older than {least}", f"install Python {least} or newer")


def check_packages() -> Iterator[Finding]:
    """Check from metadata, without imports, that the required packages are installed in suitable versions."""
    from packaging.requirements import Requirement  # comes with transformers

    try:
        required = metadata.requires(provenance.DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        what = f"{provenance.DISTRIBUTION} itself is not installed, so its methods and tasks are not found"
        yield Finding("packages", State.BAD, what, "pip install -e . in the checkout")
        return
    missing = []
    for requirement in map(Requirement, required):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = provenance.version_of(requirement.name)
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            missing.append(f"{requirement.name}{requirement.specifier} (found {version or 'none'})")
    if missing:
        names = " ".join(f"'{text.partition(' (')[0]}'" for text in missing)
        yield Finding("packages", State.BAD, f"missing or too old: {', '.join(missing)}", f"pip install {names}")
    else:
        code = provenance.code()
        yield Finding("packages", State.OK, f"{provenance.DISTRIBUTION} {code['version']} with all that it requires")


def other_bench() -> Iterator[Finding]:
    """Check whether another package has the name of one of ours, or another program `bench` comes first on PATH."""
    owners = metadata.packages_distributions()
    owners_of_names = {
        (name, owner) for name in provenance.CODE for owner in owners.get(name, ()) if owner != provenance.DISTRIBUTION
    }
    for name, owner in sorted(owners_of_names):
        fix = f"pip uninstall {owner}, or install {provenance.DISTRIBUTION} into an environment of its own"
        yield Finding("names", State.BAD, f"the package {owner} also installs {name!r}", fix)
    home = Path(__file__).parents[2]
    for name in provenance.CODE:
        spec = importlib.util.find_spec(name)
        folder = Path(spec.origin).parents[1] if spec and spec.origin else None
        if folder is not None and folder.resolve() != home.resolve():
            fix = f"start the command elsewhere, or rename {folder / name}"
            yield Finding("names", State.BAD, f"{name!r} is found in {folder}, not beside this package", fix)
    command = shutil.which("bench")
    local = Path(sys.executable).parent / "bench"
    if command and local.exists() and Path(command).resolve() != local.resolve():
        yield Finding("names", State.NOTE, f"the shell's command bench is {command}, not {local}", f"call {local}")
    elif not owners_of_names:
        yield Finding("names", State.OK, f"no other package is called {', '.join(provenance.CODE)}")


# --- libraries and the accelerator ------------------------------------------------------------------------------------


def check_torch() -> Iterator[Finding]:
    """Check the torch build, the accelerator, and whether bfloat16 works."""
    try:
        report = python_json(_TORCH)
    except FailedError as error:
        yield Finding("torch", State.BAD, f"can't be imported: {error}", "pip install --force-reinstall torch")
        return
    state = State.OK if report["computes"] else State.BAD
    what = f"{report['version']}" + ("" if report["computes"] else ", which computes a product of matrices wrongly")
    yield Finding("torch", state, what, "" if report["computes"] else "pip install --force-reinstall torch")
    if report["cards"]:
        names = ", ".join(f"{name} ({memory / _GB:.0f} GB)" for name, memory in report["cards"])
        yield Finding("accelerator", State.OK, names)
        word = "supported" if report["bf16"] else "not supported"
        fix = "" if report["bf16"] else "run with --dtype float16"
        yield Finding("bfloat16", State.OK if report["bf16"] else State.NOTE, word, fix)
    elif report["mps"]:
        yield Finding("accelerator", State.NOTE, "Apple GPU: not used", "--device mps: never tried; without float64")
    elif (cards := _card_names()) or _DRIVER_FILE.exists():
        build = f"CUDA {report['cuda']}" if report["cuda"] else "the CPU alone"
        what = f"{', '.join(cards) or 'an NVIDIA card'}: not used; torch {report['version']} is built for {build}"
        yield Finding("accelerator", State.NOTE, what, _OTHER_TORCH)
    else:
        fix = "none is needed for small models; a large one takes days without"
        yield Finding("accelerator", State.NOTE, "none was found: the CPU reads the models", fix)


def _card_names() -> list[str]:
    """Return the names of NVIDIA GPUs as nvidia-smi lists them."""
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        return program_output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], 10.0).strip().splitlines()
    except FailedError:
        return []


def check_libraries() -> Iterator[Finding]:
    """Check transformers, which every run needs, and further libraries that only some runs need."""
    for name, state_if_missing, fix in (
        ("transformers", State.BAD, "pip install --force-reinstall transformers"),
        ("deepspeed", State.NOTE, "pip install deepspeed; without it adapters are trained by torch alone"),
        ("ray", State.NOTE, "pip install 'confbench[ray]'; only --engine ray needs it"),
    ):
        version = provenance.version_of(name)
        if version is None:
            yield Finding(name, state_if_missing, "not installed", fix)
            continue
        try:
            python_json(f"import json, {name}; print(json.dumps(True))")
            yield Finding(name, State.OK, version)
        except FailedError as error:
            yield Finding(name, state_if_missing, f"{version}, which can't be imported: {error}", fix)


# --- subprocesses -----------------------------------------------------------------------------------------------------


class FailedError(Exception):
    """Raised if a program failed; the message is its last line of output, or how it ended."""


def program_output(command: list[str], seconds: float) -> str:
    """Run a program and return its output.

    Raises:
        FailedError: the program does not exist, exits with a code other than 0, or exceeds the time limit.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise FailedError(f"{command[0]}: {error.strerror}") from error
    with process:  # closes its pipes
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise FailedError(f"no answer within {seconds:.0f} s") from None
        finally:
            kill_process_group(process)  # the program's children, too, which may hold the pipes
    if process.returncode:
        last = (err.strip() or out.strip()).splitlines()[-1:]
        raise FailedError(last[0][:_MAX_MESSAGE] if last else describe_exit(process.returncode))
    return out


def python_json(program: str, seconds: float = IMPORT_S) -> Any:
    """Run a Python program and parse the last line of its output as JSON.

    Raises:
        FailedError: the program fails (see `program_output`), or the last line is not JSON.
    """
    out = program_output([sys.executable, "-c", program], seconds)
    try:
        return json.loads(out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise FailedError("it printed something unexpected") from None


# --- memory, Hub and folders ------------------------------------------------------------------------------------------


def check_memory() -> Iterator[Finding]:
    """Check how much main memory is free."""
    free = free_memory()
    if free is None:
        yield Finding("memory", State.NOTE, "this system doesn't tell")
        return
    state = State.NOTE if free < _LOW_MEMORY else State.OK
    fix = "end other programs, or run where there is more; bench params --memory tells what a model takes"
    yield Finding("memory", state, f"{free / _GB:.1f} GB free", fix if state is State.NOTE else "")


def check_hub() -> Iterator[Finding]:
    """Check whether the Hub can be reached, and whether an access token is set."""
    switches = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    offline = next((name for name in switches if os.environ.get(name, "").upper() in _TRUE_VALUES), None)
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    path = Path(os.environ.get("HF_TOKEN_PATH") or home / "token")
    has_token = bool(os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN"))
    with suppress(OSError):  # the token is neither shown nor sent
        has_token = has_token or (path.is_file() and path.stat().st_size > 0)
    token = "with a token" if has_token else "without a token"
    if offline:
        what = f"not asked, for {offline} is set ({token}): what lies in its cache is used"
        yield Finding("Hub", State.NOTE, what, f"unset {offline} to get models and data")
        return
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    answers: queue.Queue[str] = queue.Queue()

    def ask() -> None:  # in a thread, since a name lookup has no time limit
        import urllib.error
        import urllib.request

        try:
            request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - the user's own endpoint
            with urllib.request.urlopen(request, timeout=_HUB_S):  # noqa: S310
                answers.put("")
        except urllib.error.HTTPError:  # it answered
            answers.put("")
        except Exception as error:  # noqa: BLE001 - proxies and certificates fail in many ways
            answers.put(str(getattr(error, "reason", None) or error) or type(error).__name__)

    threading.Thread(target=ask, daemon=True).start()
    problem = f"no answer within {_HUB_S:.0f} s"
    with suppress(queue.Empty):
        problem = answers.get(timeout=_HUB_S + 1)
    if problem:
        fix = "look at the network, HTTPS_PROXY and HF_ENDPOINT; what lies in its cache is used, and --data-dir helps"
        yield Finding("Hub", State.NOTE, f"{address} can't be reached ({problem}), {token}", fix)
    else:
        fix = "" if has_token else "hf auth login, for models and data that ask for it"
        yield Finding("Hub", State.OK, f"{address} answers, {token}", fix)


def check_folders(out: Path) -> Iterator[Finding]:
    """Check the folders for cache, results and temporary files: they must be writable and have free space.

    Args:
        out: the results folder.
    """
    from bench.store.usage import format_size, list_usage

    cache = cache_folder()
    size = sum(row.bytes for row in list_usage(cache))
    usage = f", {format_size(size)} in it (bench cache)" if cache.is_dir() else ""
    for about, folder, suffix, fix in (
        ("cache", cache, usage, "set CONFBENCH_CACHE to a folder that can be written"),
        ("results", out, "", "name another folder with --out"),
        ("temporary", Path(tempfile.gettempdir()), "", "set TMPDIR to a folder that can be written"),
    ):
        existing_parent = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
        if folder.exists() and not folder.is_dir():
            yield Finding(about, State.BAD, f"{folder} is no folder", fix)
            continue
        try:
            with tempfile.TemporaryFile(dir=existing_parent) as file:
                file.write(b"0" * 4096)
                file.flush()
            free = shutil.disk_usage(existing_parent).free
        except OSError as error:
            yield Finding(about, State.BAD, f"{folder} can't be written: {error.strerror or error}", fix)
            continue
        what = f"{folder}, {format_size(free)} free{suffix}"
        if free < _LOW_SPACE:
            yield Finding(about, State.BAD if free < _NO_SPACE else State.NOTE, what, f"free some space, or {fix}")
        else:
            yield Finding(about, State.OK, what)
