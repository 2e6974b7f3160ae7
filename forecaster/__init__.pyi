from .evaluation import cross_validation as cross_validation
from .evaluation import cross_validation_to_parquet as cross_validation_to_parquet
from .evaluation import evaluate as evaluate
from .forecasting import Config as Config
from .forecasting import Model as Model
from .forecasting import fit as fit
from .forecasting import predict as predict
from .forecasting import predict_sums as predict_sums
from .forecasting import simulate as simulate
from .forecasting import update as update
from .ingest import load_panel as load_panel
from .pipeline import Forecaster as Forecaster
from .pipeline import explain as explain
from .pipeline import risk as risk
from .plotting import plot_forecast as plot_forecast
from .portfolio import backtest_risk as backtest_risk
from .record import Alarm as Alarm
from .record import Record as Record
from .record import Scorecard as Scorecard
from .record import forecast_alarms as forecast_alarms
from .record import read_record as read_record
from .record import scorecard as scorecard
from .series import Panel as Panel
from .storage import load as load
from .storage import save as save

__version__: str
