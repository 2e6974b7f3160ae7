"""Series from files, Yahoo or a simulated market, and the store that keeps them."""

from forecaster.ingest.loading import ingest as ingest
from forecaster.ingest.loading import ingested as ingested
from forecaster.ingest.loading import load_panel as load_panel
from forecaster.ingest.loading import panel_from_store as panel_from_store
from forecaster.ingest.membership import Membership as Membership
from forecaster.ingest.membership import read_membership as read_membership
from forecaster.ingest.sources import open_source as open_source
from forecaster.ingest.store import Store as Store
from forecaster.ingest.universe import normalise as normalise
from forecaster.ingest.universe import read_universe as read_universe
