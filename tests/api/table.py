"""Every route there is, as data: what tests walk over."""

from roost.api.app import whole_table
from roost.api.pages import Pages
from tests.api.fakeplane import FakePlane

ROUTES = whole_table(FakePlane(), Pages())
