from .html import Card as Card
from .html import Section as Section
from .html import check_uplot as check_uplot
from .page import build_report as build_report
from .page import write_figures as write_figures
from .page import write_groups as write_groups
from .page import write_tables as write_tables
