"""The laws of a store of series, on everything that one is kept in, and builds that break them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from roost.model.series import Columns
from roost.series import cleaning, columns, embedded, filing
from roost.series.embedded import EmbeddedSeries
from roost.series.opening import memory_series, open_series
from roost.series.shelf import Chunk
from tests.conformance.series import (
    LAWS,
    Law,
    counters_are_rates_and_begin_anew,
    filing_changes_nothing_that_is_read,
    late_and_repeated_readings_merge,
    nonsense_is_left_out_and_counted,
    what_is_too_old_goes_and_its_roll_up_stays,
)


def hold(law: Law, store: EmbeddedSeries) -> None:
    async def story() -> None:
        try:
            await law(store)
            assert await store.examine() == []
        finally:
            await store.close()

    asyncio.run(story())


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_in_memory(law: Law) -> None:
    hold(law, memory_series())


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_in_a_file(law: Law, tmp_path: Path) -> None:
    hold(law, open_series(f"sqlite:///{tmp_path / 'roost.db'}"))
    assert (tmp_path / "roost-series.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_on_postgresql(law: Law, postgres_url: str) -> None:
    async def story() -> None:
        store = open_series(postgres_url)
        try:
            await law(store)
            assert await store.examine() == []
        finally:
            await store.close()

    asyncio.run(story())


# Builds that break a law are found by it


def test_a_build_that_does_not_merge_with_what_is_filed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filing, "merge", lambda parts: parts[-1] if parts else columns.NOTHING)
    with pytest.raises((AssertionError, IndexError)):
        hold(late_and_repeated_readings_merge, memory_series())


def test_a_build_that_takes_a_reset_for_growth_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def grown(counter: np.ndarray, gaps: np.ndarray) -> np.ndarray:
        return np.concatenate(([np.nan], np.abs(np.diff(counter)) * 1000 / gaps))

    monkeypatch.setattr(columns, "_rate", grown)
    with pytest.raises(AssertionError):
        hold(counters_are_rates_and_begin_anew, memory_series())


def test_a_build_that_rolls_a_closed_day_up_again_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(filing, "_joined", lambda *_: columns.NOTHING)
    with pytest.raises(AssertionError):
        hold(what_is_too_old_goes_and_its_roll_up_stays, memory_series())


def test_a_build_that_keeps_whatever_it_is_told_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "FIGURES", frozenset({"cpu_milli", "of_my_own"}))
    with pytest.raises(AssertionError):
        hold(nonsense_is_left_out_and_counted, memory_series())


def test_a_build_that_loses_a_reading_when_it_files_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = filing.file_readings

    def without_first(subject: int, new: Columns, there: Sequence[Chunk]) -> list[Chunk]:
        return right(subject, columns.span(new, int(new.at_ms[0]) + 1, 2**60), there)

    monkeypatch.setattr(embedded, "file_readings", without_first)
    with pytest.raises(AssertionError):
        hold(filing_changes_nothing_that_is_read, memory_series())
