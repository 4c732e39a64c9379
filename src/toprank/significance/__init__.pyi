"""Public names of `toprank.significance`, for type checkers and for the lazy imports of `__init__.py`."""

from toprank.significance.effects import bonferroni as bonferroni
from toprank.significance.effects import effect_size as effect_size
from toprank.significance.effects import holm as holm
from toprank.significance.effects import queries_needed as queries_needed
from toprank.significance.effects import t_interval as t_interval
from toprank.significance.effects import win_tie_loss as win_tie_loss
from toprank.significance.equivalence import equivalence_test as equivalence_test
from toprank.significance.resampling import bootstrap_interval as bootstrap_interval
from toprank.significance.resampling import bootstrap_t_interval as bootstrap_t_interval
from toprank.significance.resampling import effective_sample_size as effective_sample_size
from toprank.significance.resampling import jackknife as jackknife
from toprank.significance.resampling import leave_one_out_means as leave_one_out_means
from toprank.significance.resampling import weighted_interval as weighted_interval
from toprank.significance.results import EffectSize as EffectSize
from toprank.significance.results import EquivalenceResult as EquivalenceResult
from toprank.significance.results import Interval as Interval
from toprank.significance.results import TestResult as TestResult
from toprank.significance.results import WinTieLoss as WinTieLoss
from toprank.significance.sequential import confidence_sequence_half_width as confidence_sequence_half_width
from toprank.significance.sequential import sample_ratio_p as sample_ratio_p
from toprank.significance.tests import randomization_test as randomization_test
from toprank.significance.tests import t_test as t_test
from toprank.significance.tests import wilcoxon as wilcoxon
from toprank.significance.two_level import crossed_random_effects_interval as crossed_random_effects_interval
