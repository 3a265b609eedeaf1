"""Evictions of VMs become migrations; what is not a VM's own pod is none of our business."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import InvalidRequest
from roost.kube.moving.admission import Known, Verdict, answer, judge, read_review
from roost.kube.vms.launchers import launcher_pod
from roost.kube.vms.spec import VM

ASK = VM(name="db", namespace="s", cpu_milli=1000, memory_bytes=2**30)
TEXT = 'Eviction triggered evacuation of VMI "s/db"'
AGAIN = 'VMI "s/db" is being moved already'


def the_pod(number: int = 0, node: str = "n1", **metadata: Any) -> Any:
    pod = launcher_pod(ASK, the_vm(), number)
    pod["metadata"] |= metadata
    pod["spec"]["nodeName"] = node
    return pod | {"status": {"phase": "Running"}}


def the_vm(**status: Any) -> Any:
    return {"metadata": {"name": "db", "namespace": "s", "uid": "u1"}, "status": status}


OWN = the_pod()["metadata"]["name"]
TARGET = the_pod(1)["metadata"]["name"]


def review(action: str = "eviction", name: str = OWN, *, dry_run: bool = False) -> Any:
    evicts = action == "eviction"
    return {
        "request": {
            "uid": "r1",
            "operation": "CREATE" if evicts else "DELETE",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "subResource": "eviction" if evicts else "",
            "name": name,
            "namespace": "s",
            "dryRun": dry_run,
        }
    }


def judged(known: Known, action: str = "eviction", name: str = OWN, **more: Any) -> Verdict:
    return judge(read_review(review(action, name, **more)), known)


MOVING = {"phase": "Copying", "targetPod": TARGET, "sourcePod": OWN}


@pytest.mark.parametrize("action", ["eviction", "deletion"])
def test_a_vms_own_pod_stays_and_the_vm_is_marked(action: str) -> None:
    known = Known(the_pod(), the_vm(podName=OWN, nodeName="n1"))
    assert judged(known, action) == Verdict(False, TEXT, 429, mark=True)
    # Before the controller has written down which pod it is.
    assert judged(Known(the_pod(), the_vm()), action).mark


@pytest.mark.parametrize("action", ["eviction", "deletion"])
@pytest.mark.parametrize(
    "status", [{"evacuationNodeName": "n1"}, {"migration": MOVING}], ids=["marked", "moving"]
)
def test_asking_again_marks_nothing_twice(action: str, status: Any) -> None:
    known = Known(the_pod(), the_vm(podName=OWN, **status))
    assert judged(known, action) == Verdict(False, TEXT, 429)


def test_a_dry_run_has_the_same_answer_and_marks_nothing() -> None:
    known = Known(the_pod(), the_vm(podName=OWN))
    assert judged(known, dry_run=True) == Verdict(False, TEXT, 429)


def test_while_it_cools_down_the_text_is_another() -> None:
    vm = the_vm(podName=OWN, coolDownUntil="2026-01-01T00:15:00Z")
    told = judged(Known(the_pod(), vm, cooling_until_s=900.0, now_s=100.0))
    assert (told.code, told.mark) == (429, False)
    assert "Eviction triggered evacuation" not in told.message
    assert "until 2026-01-01T00:15:00Z (800 s)" in told.message
    assert judged(Known(the_pod(), vm, cooling_until_s=900.0, now_s=900.0)).mark
    # A drain is not held up.
    cordoned = Known(the_pod(), vm, node_cordoned=True, cooling_until_s=900.0, now_s=100.0)
    assert judged(cordoned) == Verdict(False, TEXT, 429, mark=True)


def test_a_target_is_protected_until_it_is_the_vms_own() -> None:
    vm = the_vm(podName=OWN, migration=MOVING)
    told = judged(Known(the_pod(1, "n2"), vm), name=TARGET)
    assert (told.code, told.mark) == (429, False)
    assert "target of a migration" in told.message
    assert judged(Known(the_pod(1, "n2"), vm), "deletion", TARGET).code == 403
    after = the_vm(podName=TARGET, migration=MOVING | {"phase": "Handover"})
    assert judged(Known(the_pod(1, "n2"), after), name=TARGET) == Verdict(False, AGAIN, 429)
    assert judged(Known(the_pod(), after)).allowed  # the source is about to go
    done = the_vm(podName=TARGET, migration=MOVING | {"phase": "Succeeded"})
    assert judged(Known(the_pod(1, "n2"), done), name=TARGET).mark


def test_a_pod_without_a_node_has_nothing_to_move() -> None:
    told = judged(Known(the_pod(node=""), the_vm(podName=OWN)))
    assert (told.code, told.mark) == (429, False)
    assert "not on a node" in told.message
    assert judged(Known(the_pod(node=""), the_vm(podName=OWN)), "deletion").allowed


def test_a_pod_that_does_not_run_may_be_deleted_and_is_marked_when_evicted() -> None:
    conditions = [{"type": "Ready", "status": "False"}]
    pod = the_pod() | {"status": {"phase": "Running", "conditions": conditions}}
    assert judged(Known(pod, the_vm(podName=OWN)), "deletion").allowed
    assert judged(Known(pod, the_vm(podName=OWN))).mark


def test_what_no_migration_follows_is_not_called_triggered() -> None:
    # A migration of another pod, which is about to be given up.
    vm = the_vm(podName=OWN, migration=MOVING | {"sourcePod": "virt-launcher-db-other"})
    assert judged(Known(the_pod(), vm)) == Verdict(False, AGAIN, 429)
    # One that waits, whose mark somebody has taken off.
    vm = the_vm(podName=OWN, migration={"phase": "Waiting", "sourcePod": OWN})
    assert judged(Known(the_pod(), vm)).mark


GONE = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize("action", ["eviction", "deletion"])
@pytest.mark.parametrize(
    "known",
    {
        "the pod is unknown": Known(None, None),
        "the VM is unknown": Known(the_pod(), None),
        "it is let go of": Known(the_pod(finalizers=[]), the_vm()),
        "it goes already": Known(the_pod(**GONE), the_vm()),
        "it is another VM's": Known(the_pod(ownerReferences=[]), the_vm()),
        "the VM goes": Known(the_pod(), {"metadata": the_vm()["metadata"] | GONE}),
        "the VM was made anew": Known(the_pod(), {"metadata": {"name": "db", "uid": "u2"}}),
        "the node is gone": Known(the_pod(), the_vm(), node_exists=False),
        "the namespace goes": Known(the_pod(), the_vm(), namespace_goes=True),
        "it has ended": Known(the_pod() | {"status": {"phase": "Failed"}}, the_vm()),
        "it is a leftover": Known(the_pod(), the_vm(podName="virt-launcher-db-other")),
    }.items(),
    ids=lambda known: known[0],
)
def test_what_is_not_ours_to_keep_may_go(action: str, known: tuple[str, Known]) -> None:
    assert judged(known[1], action) == Verdict(True)


def test_other_pods_and_other_questions_are_allowed() -> None:
    known = Known(the_pod(), the_vm(podName=OWN))
    assert judged(known, name="nginx").allowed
    other = review()
    other["request"]["operation"] = "UPDATE"
    assert judge(read_review(other), known).allowed


def test_one_of_many_that_are_deleted_is_known_by_the_object() -> None:
    many = review("deletion", "")
    many["request"]["oldObject"] = the_pod()
    assert read_review(many).pod == OWN


@pytest.mark.parametrize("bad", [{}, {"request": None}, {"request": {}}, {"request": {"uid": 1}}])
def test_what_is_no_review_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidRequest, match="no AdmissionReview"):
        read_review(bad)


def test_the_answer_carries_code_and_text() -> None:
    asked = read_review(review())
    assert answer(asked, Verdict(True))["response"] == {"uid": "r1", "allowed": True}
    told = answer(asked, Verdict(False, TEXT, 429))["response"]
    assert (told["uid"], told["status"]["code"], told["status"]["message"]) == ("r1", 429, TEXT)
    assert told["status"]["reason"] == "TooManyRequests"


PHASES = ["", "Waiting", "Scheduling", "Copying", "Handover", "Succeeded", "Failed"]


@given(
    st.sampled_from(["eviction", "deletion"]),
    st.sampled_from([OWN, TARGET]),
    st.sampled_from(["", OWN, TARGET]),
    st.sampled_from(PHASES),
    st.sampled_from(["", "n1", "n2"]),
    st.booleans(),
)
def test_a_pod_that_the_vm_lives_in_or_moves_to_is_never_let_go(
    action: str, asked: str, pod_name: str, phase: str, marked: str, dry_run: bool
) -> None:
    migration = MOVING | {"phase": phase}
    vm = the_vm(podName=pod_name, migration=migration, evacuationNodeName=marked)
    pod = the_pod(int(asked == TARGET))
    told = judged(Known(pod, vm), action, asked, dry_run=dry_run)
    needed = asked == (pod_name or asked)
    needed |= asked == TARGET and phase in ("Scheduling", "Copying")
    assert told.allowed == (not needed)
    assert not (told.mark and (dry_run or told.allowed or marked == "n1"))
