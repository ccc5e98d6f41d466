"""Until who imports these names does so from where they are."""

from __future__ import annotations

from perfaudit.static.understanding.backward import OPTIMIZER_NAME as OPTIMIZER_NAME
from perfaudit.static.understanding.backward import backward_calls as backward_calls
from perfaudit.static.understanding.backward import losses_handed_over as losses_handed_over
from perfaudit.static.understanding.backward import updates_weights as updates_weights
from perfaudit.static.understanding.called_functions import assigned_once as assigned_once
from perfaudit.static.understanding.called_functions import called_function as called_function
from perfaudit.static.understanding.called_functions import callers as callers
from perfaudit.static.understanding.called_functions import calls_of_functions as calls_of_functions
from perfaudit.static.understanding.demonstrations import is_main_guard as is_main_guard
from perfaudit.static.understanding.demonstrations import is_shown_only as is_shown_only
from perfaudit.static.understanding.demonstrations import is_test as is_test
from perfaudit.static.understanding.each_time import runs_each_time as runs_each_time
from perfaudit.static.understanding.each_time import runs_in_any_case as runs_in_any_case
from perfaudit.static.understanding.epochs import counts_epochs as counts_epochs
from perfaudit.static.understanding.epochs import takes_few_long_steps as takes_few_long_steps
from perfaudit.static.understanding.evaluation import EVALUATION_NAME as EVALUATION_NAME
from perfaudit.static.understanding.evaluation import only_evaluates as only_evaluates
from perfaudit.static.understanding.how_often import STEP_METHODS as STEP_METHODS
from perfaudit.static.understanding.how_often import runs_every_step as runs_every_step
from perfaudit.static.understanding.how_often import runs_often as runs_often
from perfaudit.static.understanding.how_often import runs_seldom as runs_seldom
from perfaudit.static.understanding.names import dotted_name as dotted_name
from perfaudit.static.understanding.names import last_name as last_name
from perfaudit.static.understanding.no_grad import NO_GRAD as NO_GRAD
from perfaudit.static.understanding.no_grad import SET_GRAD as SET_GRAD
from perfaudit.static.understanding.no_grad import in_no_grad as in_no_grad
from perfaudit.static.understanding.no_grad import turns_grad_off as turns_grad_off
from perfaudit.static.understanding.rarely import is_rare_part as is_rare_part
from perfaudit.static.understanding.rarely import rare_when as rare_when
from perfaudit.static.understanding.rarely import runs_rarely as runs_rarely
from perfaudit.static.understanding.rarely import skip_before as skip_before
from perfaudit.static.understanding.step_code import StepCode as StepCode
from perfaudit.static.understanding.step_code import evaluates as evaluates
from perfaudit.static.understanding.step_code import leaves_step as leaves_step
from perfaudit.static.understanding.step_code import step_code as step_code
from perfaudit.static.understanding.step_loops import CALLS_DEEP as CALLS_DEEP
from perfaudit.static.understanding.step_loops import StepLoop as StepLoop
from perfaudit.static.understanding.step_loops import is_over_written_values as is_over_written_values
from perfaudit.static.understanding.step_loops import step_loops as step_loops
