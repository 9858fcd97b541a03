package policy

import "k8s.io/apimachinery/pkg/types"

// work is one item of the queue.
type work struct {
	subject subject
	types.NamespacedName
}

type subject string

const (
	policy subject = "policy"
	set    subject = "set"
)
