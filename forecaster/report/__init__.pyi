from .page import build_report as build_report
from .page import write_figures as write_figures
from .page import write_tables as write_tables
