"""Recommendations in both clients: the call and its method."""

from roost.client.binding import Method
from roost.client.calls import Call, path, reads
from roost.wire import recommendations as wire


def recommend(question: wire.AskRecommendations) -> Call[wire.RecommendationsBody]:
    """Rank the hosts for a VM that exists, or for one that does not."""
    read = reads(wire.RecommendationsBody)
    return Call("POST", path("recommendations"), read, body=question)


class RecommendationMethods:
    """What clients ask about better places."""

    recommend = Method(recommend)
