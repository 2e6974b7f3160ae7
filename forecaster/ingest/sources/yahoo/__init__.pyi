from .source import Yahoo as Yahoo
