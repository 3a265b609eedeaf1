"""Kernels compiled by another process, and the sign that says that they are there."""

import asyncio

import pytest

from roost.app.warming import COMPILES, _sign, compile_elsewhere, is_warm


@pytest.mark.skipif(not COMPILES, reason="nothing is compiled: NUMBA_DISABLE_JIT")
def test_another_process_compiles_and_leaves_its_sign() -> None:
    sign = _sign()
    if sign is None:
        pytest.skip("no folder can keep compiled code: set ROOST_CACHE")
    sign.unlink(missing_ok=True)
    assert not is_warm()
    turns = 0

    async def whole() -> None:
        nonlocal turns
        compiling = asyncio.create_task(compile_elsewhere())
        while not compiling.done():
            await asyncio.wait([compiling], timeout=0.01)
            turns += 1

    asyncio.run(whole())
    assert is_warm()
    assert turns > 10  # the loop had its turns meanwhile


def test_a_compiling_process_ends_with_who_waits_for_it() -> None:
    async def whole() -> None:
        compiling = asyncio.create_task(compile_elsewhere())
        await asyncio.wait([compiling], timeout=0.2)
        compiling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await compiling

    asyncio.run(whole())
