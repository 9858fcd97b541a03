package conversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// review is a ConversionReview whose objects are not decoded yet.
type review struct {
	metav1.TypeMeta `json:",inline"`

	Request *struct {
		UID               types.UID `json:"uid"`
		DesiredAPIVersion string    `json:"desiredAPIVersion"`
		Objects           []object  `json:"objects"`
	} `json:"request"`
}

// object is the JSON of an object, and part of the body that it came in.
type object []byte

// UnmarshalJSON keeps the text without copying it, as json.RawMessage would: a body may be megabytes.
func (o *object) UnmarshalJSON(text []byte) error {
	*o = text
	return nil
}

// read decodes what is around the objects. They count as long as the body does.
func (r *review) read(body []byte) error {
	if err := decode(body, r); err != nil {
		return err
	}
	if r.Request == nil {
		return errors.New("it has no request")
	}
	return nil
}

// answer is the response to a review.
type answer struct {
	result metav1.Status
	// objects are the JSON of the converted ones, with commas.
	objects bytes.Buffer
}

func failure(code int32, reason metav1.StatusReason, message string) *answer {
	return &answer{result: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// write sends a ConversionReview. It is put together by hand: encoding it would copy the objects once more.
func (a *answer) write(to io.Writer, asked *review) error {
	head, err := json.Marshal(struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
	}{asked.Kind, asked.APIVersion})
	if err != nil {
		return err
	}
	uid, err := json.Marshal(asked.Request.UID)
	if err != nil {
		return err
	}
	result, err := json.Marshal(a.result)
	if err != nil {
		return err
	}
	for _, part := range [][]byte{
		head[:len(head)-1], []byte(`,"response":{"uid":`), uid, []byte(`,"convertedObjects":[`), a.objects.Bytes(),
		[]byte(`],"result":`), result, []byte("}}\n"),
	} {
		if _, err := to.Write(part); err != nil {
			return err
		}
	}
	return nil
}
