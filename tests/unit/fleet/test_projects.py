"""What projects' VMs ask for together, counted one by one or many at once."""

from hypothesis import given
from hypothesis import strategies as st

from roost.fleet.projects import ProjectAccounts

_AMOUNTS = st.sampled_from([(1, 2, 3), (4, 8, 40), (0, 0, 0)])
_VMS = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=2), st.tuples(st.sampled_from("pq"), _AMOUNTS)
)


@given(first=_VMS, more=_VMS)
def test_many_at_once_count_as_they_do_one_by_one(
    first: dict[str, tuple[str, tuple[int, int, int]]],
    more: dict[str, tuple[str, tuple[int, int, int]]],
) -> None:
    together, alone = ProjectAccounts(), ProjectAccounts()
    together.put_new((key, project, *amounts) for key, (project, amounts) in first.items())
    for key, (project, amounts) in first.items():
        alone.put(key, project, amounts)
    for accounts in (together, alone):
        for key, (project, amounts) in more.items():  # some are known by now
            accounts.put(key, project, amounts)
        for key in list(first)[::2]:
            accounts.drop(key)
    assert len(together) == len(alone)
    for project in "pq":
        assert together.use(project) == alone.use(project)
        for key in {*first, *more}:
            assert together.use(project, without=key) == alone.use(project, without=key)
