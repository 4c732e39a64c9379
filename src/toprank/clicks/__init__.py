"""Labels from behaviour: what users clicked, and what may be learnt from it."""

from toprank.clicks.cascades import CCM, DBN, DCM, SDBN, Cascade
from toprank.clicks.checking import LogReport, check
from toprank.clicks.corrections import preferences
from toprank.clicks.estimators import propensities
from toprank.clicks.evaluation import Estimates, SmallSampleWarning, evaluate
from toprank.clicks.files import read, write
from toprank.clicks.held_out import ComparedModels, compare_models
from toprank.clicks.interleaved import Interleaving, interleave, interleaving
from toprank.clicks.launching import Launch, launch
from toprank.clicks.log import ClickLog, UnidentifiedError, UnidentifiedWarning
from toprank.clicks.models import PBM, UBM, ClickModel, DocumentCTR, GlobalCTR, Perplexity, RankCTR, rate_prior
from toprank.clicks.recency import Recency
from toprank.clicks.releases import Release, ab, interleaved_release
from toprank.clicks.simulation import simulate
from toprank.clicks.training import Trained, train

__all__ = [
    "CCM", "DBN", "DCM", "PBM", "SDBN", "UBM", "Cascade", "ClickLog", "ClickModel", "ComparedModels", "DocumentCTR",
    "Estimates", "GlobalCTR", "Interleaving", "Launch", "LogReport", "Perplexity", "RankCTR", "Recency", "Release",
    "SmallSampleWarning", "Trained", "UnidentifiedError", "UnidentifiedWarning", "ab", "check", "compare_models",
    "evaluate", "interleave", "interleaved_release", "interleaving", "launch", "preferences", "propensities",
    "rate_prior", "read", "simulate", "train", "write",
]  # fmt: skip
