"""An evaluation as one HTML file that opens anywhere, and its figures."""

from forecaster.report.page import build_report as build_report
from forecaster.report.page import write_figures as write_figures
from forecaster.report.page import write_tables as write_tables
