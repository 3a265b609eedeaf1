"""The groups of a pod that waits: where its rules mean the same in roost, in this cluster.

Kubernetes and roost read the same rule differently in some corners, and whether a corner is
reached depends on nodes and pods that are there. So both readings are worked out and compared:

| rule | Kubernetes | roost |
|---|---|---|
| anti-affinity | a node without the topology key passes | its domain is unknown: refused |
| anti-affinity | rules that only others carry keep a pod away too | members obey their group |
| spread | domains are those of the pod's node affinity, tainted nodes too | of usable hosts |
| spread | pods on nodes outside that affinity do not count | every member counts |
| affinity | several terms: the first pod anywhere only when none has a match | each group alone |
"""

from collections import Counter
from collections.abc import Iterator

from roost.kube.base.names import HOSTNAME_LABEL
from roost.kube.base.objects import Object, key_of
from roost.kube.translate.cluster import Cluster
from roost.kube.translate.nodeselectors import NodeChoice
from roost.kube.translate.podrules import HONOR, AntiTerm, PodRule, pod_rules
from roost.kube.translate.taints import PREFER_NOT, node_taints, tolerated
from roost.kube.translate.unsupported import Unsupported
from roost.model.groups import GroupRule, GroupSpec

_FIELDS = {
    GroupRule.AFFINITY: "affinity.podAffinity",
    GroupRule.ANTI_AFFINITY: "affinity.podAntiAffinity",
    GroupRule.SPREAD: "topologySpreadConstraints",
}


def translate_groups(
    cluster: Cluster, pod: Object, choice: NodeChoice
) -> tuple[tuple[GroupSpec, ...], list[Unsupported]]:
    """Return the groups that a pod joins, and what they do not say."""
    rules, unsupported = pod_rules(pod)
    joined, more = _kept_away_by(cluster, pod, rules)
    rules, unsupported = [*rules, *joined], [*unsupported, *more]
    groups = []
    for rule in rules:
        scope = cluster.topology.scope(rule.key)
        if scope is None:
            problems = [f"topology key {rule.key} is one more than roost has scopes for"]
        else:
            groups.append(rule.group(scope))
            problems = [*_unlike_domains(cluster, rule), *_read_apart(cluster, pod, rule, choice)]
        unsupported += [Unsupported(_FIELDS[rule.rule], problem, rule.hard) for problem in problems]
    unsupported += _first_of_several(cluster, rules)
    return tuple(dict.fromkeys(groups)), unsupported


def members(cluster: Cluster, rule: PodRule) -> Counter[str]:
    """Return how many pods that a rule counts are in each domain."""
    found: Counter[str] = Counter()
    domains = cluster.values(rule.key)
    for name, pods in cluster.placed.items():
        if (domain := domains[name]) is not None:
            found[domain] += sum(rule.counts(pod) for pod in pods)
    return found


def _kept_away_by(
    cluster: Cluster, pod: Object, rules: list[PodRule]
) -> tuple[list[PodRule], list[Unsupported]]:
    """Return the groups a pod must join because others keep it away.

    That is the same only if everybody whom the group counts carries its rule: two pods without it
    may be together in Kubernetes.
    """
    namespace = pod["metadata"].get("namespace", "")
    joined, unsupported = [], []
    carried = {
        AntiTerm(frozenset({rule.namespace}), rule.selector, rule.key)
        for rule in rules
        if rule.rule is GroupRule.ANTI_AFFINITY and rule.hard
    }
    for term, carriers in cluster.anti_terms.items():
        if term in carried or not term.matches(pod) or carriers == {key_of(pod)}:
            continue
        others = cluster.matching(term) - {key_of(pod)}
        if term.namespaces == frozenset({namespace}) and others == carriers:
            joined.append(PodRule(namespace, term.selector, term.key, GroupRule.ANTI_AFFINITY))
        else:
            who = "/".join(min(carriers - {key_of(pod)}))
            unsupported.append(
                Unsupported(
                    "affinity.podAntiAffinity",
                    f"{who} keeps this pod away, which does not keep away itself",
                )
            )
    return joined, unsupported


def _unlike_domains(cluster: Cluster, rule: PodRule) -> Iterator[str]:
    """Yield why the domains of a key are not those of a scope."""
    if rule.key == HOSTNAME_LABEL:
        if not cluster.hosts_are_domains:
            yield "some nodes have no host name of their own"
    elif "" in cluster.values(rule.key).values():
        yield f"some nodes have an empty {rule.key}, which is a domain in Kubernetes"


def _read_apart(cluster: Cluster, pod: Object, rule: PodRule, choice: NodeChoice) -> Iterator[str]:
    """Yield why a rule means something else here."""
    if rule.rule is GroupRule.ANTI_AFFINITY:
        domains = cluster.values(rule.key)
        without = [
            name
            for name, node in cluster.nodes.items()
            if domains[name] is None and choice.matches(node)
        ]
        if without:
            yield f"{without[0]} has no {rule.key} and passes in Kubernetes"
    if rule.rule is GroupRule.SPREAD and rule.hard:
        theirs = _spread_theirs(cluster, pod, rule, choice)
        ours = _spread_ours(cluster, pod, rule, choice)
        if missing := sorted(theirs.keys() ^ ours.keys()):
            yield f"domain {missing[0]} counts in one of the two only"
        elif theirs != ours:
            yield "pods on nodes outside the pod's node affinity do not count in Kubernetes"
        if rule.min_domains > len(theirs):
            yield f"minDomains {rule.min_domains} is more than the {len(theirs)} domains there are"


def _spread_theirs(
    cluster: Cluster, pod: Object, rule: PodRule, choice: NodeChoice
) -> dict[str, int]:
    """Return the domains that Kubernetes compares, with its count of pods in each."""
    keys = {each.key for each in pod_rules(pod)[0] if each.rule is rule.rule and each.hard}
    tolerations = pod["spec"].get("tolerations") or ()
    found: Counter[str] = Counter()
    for name, node in cluster.nodes.items():
        labels = node["metadata"].get("labels") or {}
        if not keys <= labels.keys():
            continue
        if rule.node_affinity == HONOR and not choice.matches(node):
            continue
        if rule.node_taints == HONOR and not all(
            tolerated(taint, tolerations)
            for taint in node.get("spec", {}).get("taints") or ()
            if taint["effect"] != PREFER_NOT
        ):
            continue
        found[labels[rule.key]] += sum(rule.counts(each) for each in cluster.placed.get(name, ()))
    return dict(found)


def _spread_ours(
    cluster: Cluster, pod: Object, rule: PodRule, choice: NodeChoice
) -> dict[str, int]:
    """Return the domains that roost compares, with the members of the group in each."""
    tolerations = pod["spec"].get("tolerations") or ()
    counted = members(cluster, rule)
    return {
        domain: counted[domain]
        for name, node in cluster.nodes.items()
        if (domain := (node["metadata"].get("labels") or {}).get(rule.key)) is not None
        and choice.matches(node)
        and all(
            tolerated(taint, tolerations)
            for taint in node_taints(node)
            if taint["effect"] != PREFER_NOT
        )
    }


def _first_of_several(cluster: Cluster, rules: list[PodRule]) -> Iterator[Unsupported]:
    """Yield that some required affinity has its first pod and another has not."""
    kept = [rule for rule in rules if rule.rule is GroupRule.AFFINITY and rule.hard]
    if len({bool(members(cluster, rule).total()) for rule in kept}) > 1:
        yield Unsupported(
            _FIELDS[GroupRule.AFFINITY], "some nodes of matching pods lack a topology key"
        )
