package policy

import "github.com/opgate/opgate/snapshot"

type (
	storedPolicy = snapshot.Policy
	storedSet    = snapshot.PolicySet
)
