"""What is told of the fits of a matrix before the first of them: who takes how long, and who is made last."""

from __future__ import annotations

from bench.run.analyses.transfer import FitCosts, describe_fits, sort_by_cost


def test_fits_are_named_from_a_hundredth_of_all_on() -> None:
    fits = [FitCosts("quick", [False], 5.0), FitCosts("dear", [False], 900.0), FitCosts("fair", [False] * 5, 3.0),
            FitCosts("middle", [True, False, True, False], 40.0), FitCosts("done", [True], 10_000.0)]  # fmt: skip
    assert describe_fits(fits)[0] == (
        "9 of 12 fits are not stored: at most 17 min, of which dear at most 15 min (1 of at most 15 min each), middle"
        " at most 80 s (2 of at most 40 s each), fair at most 15 s (5 of at most 3 s each), others at most 5 s"
    )


def test_fits_of_six_methods_are_named_at_most() -> None:
    (line, _) = describe_fits([FitCosts(f"m{i}", [False], 10.0 + i) for i in range(8)])
    assert [name for name in (f"m{i}" for i in range(8)) if f"{name} at most" in line] == [f"m{i}" for i in range(2, 8)]
    assert line.endswith("m2 at most 12 s (1 of at most 12 s each), others at most 21 s")


def test_fits_of_unknown_time_are_counted() -> None:
    unknown = [FitCosts("own", [False, True, False], "its own code decides it"), FitCosts("own", [False], "as before")]
    assert describe_fits(unknown)[0] == "3 of 4 fits are not stored: in a time that can't be said; not known of own (3)"
    both = describe_fits([*unknown, FitCosts("a", [False], 30.0)])[0]
    assert both.endswith("at most 30 s, of which a at most 30 s (1 of at most 30 s each); not known of own (3)")


def test_fits_that_are_stored_are_no_work() -> None:
    assert describe_fits([FitCosts("a", [True, True], 5.0)]) == ["all 2 fits are stored"]
    assert describe_fits([]) == []


def test_methods_are_made_in_the_order_of_what_is_left() -> None:
    fits = [FitCosts("own", [False], "its own code decides it"), FitCosts("dear", [True, False], 100.0),
            FitCosts("many", [False] * 9, 10.0), FitCosts("many", [False] * 2, 10.0),
            FitCosts("stored", [True], "as before"), FitCosts("elsewhere", [False], 1.0)]  # fmt: skip
    assert sort_by_cost(["own", "many", "dear", "none", "stored"], fits) == ["none", "stored", "dear", "many", "own"]
