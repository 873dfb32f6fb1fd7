"""What can be done with workloads, and what needs to see them: one function a verb."""

from workloads.services.acting import (
    change_priority,
    change_visibility,
    delete_workload,
    extend_workload,
    hold_workload,
    move_workload,
    release_workload,
    reorder_workload,
    restart_workload,
    stop_workload,
)
from workloads.services.configuring import (
    create_template,
    delete_template,
    edit_template,
    limits_of,
    read_entries,
    save_configuration,
)
from workloads.services.limits import stop_overdue
from workloads.services.nodes import set_node_state
from workloads.services.removing import (
    blockers_of_quota,
    blockers_of_workspace,
    delete_quota,
    delete_workspace,
    unbind_quota,
)
from workloads.services.scaling import (
    add_rule,
    apply_due_rules,
    edit_rule,
    lead_of,
    remove_rule,
    save_rules,
    scale_workload,
)
from workloads.services.submitting import clone_workload, judge_submission, submit_workload, submit_workloads

__all__ = [
    "add_rule",
    "apply_due_rules",
    "blockers_of_quota",
    "blockers_of_workspace",
    "change_priority",
    "change_visibility",
    "clone_workload",
    "create_template",
    "delete_quota",
    "delete_template",
    "delete_workload",
    "delete_workspace",
    "edit_rule",
    "edit_template",
    "extend_workload",
    "hold_workload",
    "judge_submission",
    "lead_of",
    "limits_of",
    "move_workload",
    "read_entries",
    "release_workload",
    "remove_rule",
    "reorder_workload",
    "restart_workload",
    "save_configuration",
    "save_rules",
    "scale_workload",
    "set_node_state",
    "stop_overdue",
    "stop_workload",
    "submit_workload",
    "submit_workloads",
    "unbind_quota",
]
