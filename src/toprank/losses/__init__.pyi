"""The names of `toprank.losses`, and where they live: read by type checkers, and by `__init__.py` as it starts."""

# isort: off
from toprank.losses.base import Block as Block
from toprank.losses.base import BoundLoss as BoundLoss
from toprank.losses.base import Curvature as Curvature
from toprank.losses.base import Diagonal as Diagonal
from toprank.losses.base import Eval as Eval
from toprank.losses.base import Judgments as Judgments
from toprank.losses.base import Loss as Loss
from toprank.losses.base import Traits as Traits
from toprank.losses.base import Requested as Requested
from toprank.losses.checking import check_loss as check_loss
from toprank.losses.base import from_spec as from_spec
from toprank.losses.base import make as make
from toprank.losses.base import names as names
from toprank.losses.base import to_spec as to_spec

# Losses, in the order in which pages list them.
from toprank.losses.pointwise import Squared as Squared
from toprank.losses.pointwise import QuerySquared as QuerySquared
from toprank.losses.pointwise import ModifiedSquared as ModifiedSquared
from toprank.losses.pointwise import PowerRegression as PowerRegression
from toprank.losses.pointwise import CrossEntropy as CrossEntropy
from toprank.losses.pointwise import ImportanceWeightedSquared as ImportanceWeightedSquared
from toprank.losses.ordinal import Multinomial as Multinomial
from toprank.losses.ordinal import Ordinal as Ordinal
from toprank.losses.pairwise import Hinge as Hinge
from toprank.losses.pairwise import SquaredHinge as SquaredHinge
from toprank.losses.pairwise import Logistic as Logistic
from toprank.losses.pairwise import Exponential as Exponential
from toprank.losses.hinges import OWPC as OWPC
from toprank.losses.hinges import SVMmap as SVMmap
from toprank.losses.lambdas import LambdaRank as LambdaRank
from toprank.losses.lambdas import LambdaLoss as LambdaLoss
from toprank.losses.softmax import ListNet as ListNet
from toprank.losses.softmax import Multicategory as Multicategory
from toprank.losses.softmax import WeightedSoftmax as WeightedSoftmax
from toprank.losses.softmax import CalibratedSoftmax as CalibratedSoftmax
from toprank.losses.unique import UniqueSoftmax as UniqueSoftmax
from toprank.losses.softmax import XENDCG as XENDCG
from toprank.losses.listmle import ListMLE as ListMLE
from toprank.losses.listmle import PListMLE as PListMLE
from toprank.losses.listmle import CostSensitiveListMLE as CostSensitiveListMLE
from toprank.losses.cosine import Cosine as Cosine
from toprank.losses.smooth import ApproxNDCG as ApproxNDCG
from toprank.losses.smooth import ApproxMRR as ApproxMRR
from toprank.losses.smooth import ApproxMetric as ApproxMetric
from toprank.losses.smooth import SoftRank as SoftRank
from toprank.losses.smooth import NeuralNDCG as NeuralNDCG
from toprank.losses.safe import SafeDCG as SafeDCG
from toprank.losses.boltzrank import BoltzRank as BoltzRank
from toprank.losses.yetirank import YetiRank as YetiRank
from toprank.losses.teachers import MarginMSE as MarginMSE
from toprank.losses.teachers import SoftLogistic as SoftLogistic
from toprank.losses.teachers import SoftmaxKL as SoftmaxKL
from toprank.losses.composed import Mix as Mix
from toprank.losses.composed import Gumbel as Gumbel
