package inflight

import (
	"bytes"

	"github.com/opgate/opgate/internal/apijson"
)

// Head is what the API server writes of a review before the object: enough to refuse a review that is not read in full.
type Head struct {
	// UID is that of the request, "" if the text does not contain one of at most maxName bytes.
	UID string
	// Namespace is that of the object, "" for objects without one.
	Namespace string
}

// maxName bounds the UID and the namespace in bytes: the UID is repeated in the answer.
const maxName = 253

// ReadHead reads the head of a review from as much of its text as there is.
func ReadHead(text []byte) Head {
	before, _, _ := bytes.Cut(text, []byte(`"object":`))
	if h := headOf(before); h.UID != "" {
		return h
	}
	return headOf(text) // not in the order that the API server writes
}

func headOf(text []byte) (h Head) {
	var review struct {
		Request struct {
			UID       string `json:"uid"`
			Namespace string `json:"namespace"`
		} `json:"request"`
	}
	_ = apijson.Unmarshal(text, &review) // what comes before the fault, or before the text ends, is set
	if uid := review.Request.UID; len(uid) <= maxName {
		h.UID = uid
	}
	if namespace := review.Request.Namespace; len(namespace) <= maxName {
		h.Namespace = namespace
	}
	return h
}
