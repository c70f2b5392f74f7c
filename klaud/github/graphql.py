"""The GraphQL documents klaud sends, and nothing else: text built from closed parts, values only as variables.

Two batched reads (pull requests by head and by number, with commits, labels and timeline), one that pages a timeline on,
and the mutations that REST does not have. An alias is ``h<i>`` or ``n<i>`` with the index of what was asked, so that an
error's path names the item that failed. Node limits: GitHub allows 500,000 nodes a query; ``BATCH`` heads with
``PULLS_OF_HEAD`` pull requests each and 300 rows below each stay under 125,000.
"""

from __future__ import annotations

BATCH = 40
"""Heads or numbers a query: more run into GitHub's ten-second limit of one query (a 502)."""

PULLS_OF_HEAD = 10
"""Pull requests of one head in a batch; klaud opens one. More are reported as incomplete."""

ROWS = 100
"""Rows of each connection a page: GitHub's own maximum."""

_ACTOR = """
fragment actor on Actor {
  __typename
  login
  ... on User { databaseId }
  ... on Bot { databaseId }
  ... on Mannequin { databaseId }
  ... on Organization { databaseId }
}"""

_ACTED = (
    "ClosedEvent",
    "ReopenedEvent",
    "MergedEvent",
    "RenamedTitleEvent",
    "AssignedEvent",
    "UnassignedEvent",
    "ReadyForReviewEvent",
    "ConvertToDraftEvent",
    "HeadRefForcePushedEvent",
    "HeadRefDeletedEvent",
    "HeadRefRestoredEvent",
    "BaseRefChangedEvent",
    "BaseRefForcePushedEvent",
    "ReviewRequestedEvent",
    "ReviewRequestRemovedEvent",
    "ReviewDismissedEvent",
    "MilestonedEvent",
    "DemilestonedEvent",
    "LockedEvent",
    "UnlockedEvent",
    "AutoMergeEnabledEvent",
    "AutoMergeDisabledEvent",
    "CommentDeletedEvent",
)
"""Timeline types read by actor and time alone; mentions, subscriptions, references and deployments are not asked for."""

_ITEM_TYPES = (
    "PULL_REQUEST_COMMIT, ISSUE_COMMENT, PULL_REQUEST_REVIEW, LABELED_EVENT, UNLABELED_EVENT, CLOSED_EVENT, REOPENED_EVENT, "
    "MERGED_EVENT, RENAMED_TITLE_EVENT, ASSIGNED_EVENT, UNASSIGNED_EVENT, READY_FOR_REVIEW_EVENT, CONVERT_TO_DRAFT_EVENT, "
    "HEAD_REF_FORCE_PUSHED_EVENT, HEAD_REF_DELETED_EVENT, HEAD_REF_RESTORED_EVENT, BASE_REF_CHANGED_EVENT, "
    "BASE_REF_FORCE_PUSHED_EVENT, REVIEW_REQUESTED_EVENT, REVIEW_REQUEST_REMOVED_EVENT, REVIEW_DISMISSED_EVENT, "
    "MILESTONED_EVENT, DEMILESTONED_EVENT, LOCKED_EVENT, UNLOCKED_EVENT, AUTO_MERGE_ENABLED_EVENT, "
    "AUTO_MERGE_DISABLED_EVENT, COMMENT_DELETED_EVENT"
)

_ITEMS = (
    """
fragment items on PullRequestTimelineItemsConnection {
  pageInfo { hasNextPage endCursor }
  nodes {
    __typename
    ... on Node { id }
    ... on PullRequestCommit { commit { oid committedDate } }
    ... on IssueComment { author { ...actor } createdAt }
    ... on PullRequestReview { author { ...actor } createdAt submittedAt }
    ... on LabeledEvent { actor { ...actor } createdAt label { name } }
    ... on UnlabeledEvent { actor { ...actor } createdAt label { name } }
"""
    + "".join(f"    ... on {name} {{ actor {{ ...actor }} createdAt }}\n" for name in _ACTED)
    + "  }\n}"
)

_PULL = f"""
fragment pull on PullRequest {{
  id
  number
  state
  isDraft
  title
  body
  author {{ ...actor }}
  editor {{ ...actor }}
  lastEditedAt
  headRefName
  headRefOid
  headRepository {{ nameWithOwner }}
  baseRefName
  mergeable
  createdAt
  updatedAt
  closedAt
  mergedAt
  labels(first: {ROWS}) {{ totalCount nodes {{ name }} }}
  commits(first: {ROWS}) {{
    totalCount
    pageInfo {{ hasNextPage endCursor }}
    nodes {{
      commit {{
        oid
        message
        author {{ email user {{ databaseId login }} }}
        committer {{ email user {{ databaseId login }} }}
      }}
    }}
  }}
  timelineItems(first: {ROWS}, itemTypes: [{_ITEM_TYPES}]) {{ ...items }}
}}"""

_FRAGMENTS = _PULL + _ITEMS + _ACTOR


def pulls_of_heads(count: int) -> str:
    """Return the query for ``count`` heads: variables ``owner``, ``name``, ``h0`` ... ; aliases ``h0`` ..."""
    variables = "".join(f", $h{i}: String!" for i in range(count))
    parts = "".join(
        f"    h{i}: pullRequests(headRefName: $h{i}, first: {PULLS_OF_HEAD},"
        f" orderBy: {{field: CREATED_AT, direction: DESC}}) {{ totalCount nodes {{ ...pull }} }}\n"
        for i in range(count)
    )
    return (
        f"query PullsOfHeads($owner: String!, $name: String!{variables}) {{\n"
        f"  repository(owner: $owner, name: $name) {{\n{parts}  }}\n}}{_FRAGMENTS}\n"
    )


def pull_details(count: int) -> str:
    """Return the query for ``count`` numbers: variables ``owner``, ``name``, ``n0`` ... ; aliases ``n0`` ..."""
    variables = "".join(f", $n{i}: Int!" for i in range(count))
    parts = "".join(f"    n{i}: pullRequest(number: $n{i}) {{ ...pull }}\n" for i in range(count))
    return (
        f"query PullDetails($owner: String!, $name: String!{variables}) {{\n"
        f"  repository(owner: $owner, name: $name) {{\n{parts}  }}\n}}{_FRAGMENTS}\n"
    )


TIMELINE_PAGE = f"""query TimelinePage($id: ID!, $after: String!) {{
  node(id: $id) {{
    ... on PullRequest {{
      timelineItems(first: {ROWS}, after: $after, itemTypes: [{_ITEM_TYPES}]) {{ ...items }}
    }}
  }}
}}{_ITEMS}{_ACTOR}
"""
"""One more page of a pull request's timeline: variables ``id`` (node id), ``after`` (cursor)."""

VIEWER = """query Viewer {
  viewer { __typename login databaseId }
}
"""
"""The token's own account, for tokens of an app installation, which ``GET /user`` refuses."""

CONVERT_TO_DRAFT = """mutation ConvertToDraft($id: ID!) {
  convertPullRequestToDraft(input: {pullRequestId: $id}) { pullRequest { isDraft } }
}
"""

MARK_READY = """mutation MarkReady($id: ID!) {
  markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { isDraft } }
}
"""

REPOSITORY_ID = """query RepositoryId($owner: String!, $name: String!) {
  repository(owner: $owner, name: $name) { id }
}
"""

UPDATE_REFS = """mutation UpdateRefs($repository: ID!, $updates: [RefUpdate!]!) {
  updateRefs(input: {repositoryId: $repository, refUpdates: $updates}) { clientMutationId }
}
"""
"""Many refs, all or none. A ``RefUpdate`` is ``{name, beforeOid, afterOid, force}``; the zero oid means "does not exist"."""
