package olm

import (
	"strings"
	"testing"
)

// TestAnnotations: rules read short annotations, and know of the others only that they exist. What is no map of texts
// is an error.
func TestAnnotations(t *testing.T) {
	texts := func(annotations string) (map[string]*string, error) {
		csv, err := Decode[CSV]([]byte(`{"metadata":{"name":"a","annotations":` + annotations + `},"spec":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		if csv.Metadata.Name != "a" {
			t.Errorf("the rest of the metadata is read as %+v", csv.Metadata)
		}
		if n := len(csv.Spec.annotations.raw); n > maxListBytes {
			t.Errorf("%d bytes are kept", n)
		}
		return (&Demands{Spec: &csv.Spec}).Annotations()
	}
	got, err := texts(`{"a":"b","alm-examples":"` + strings.Repeat("x", maxAnnotation) +
		`","":"","a\u0062":"\"","a":"c"}`)
	if err != nil || len(got) != 4 || *got["a"] != "c" || *got[""] != "" || *got["ab"] != `"` {
		t.Errorf("%v, %v", got, err)
	}
	if long, ok := got["alm-examples"]; !ok || long != nil {
		t.Errorf("a long one is read as %v, known %v", long, ok)
	}
	for _, none := range []string{`{}`, `null`} {
		if got, err := texts(none); err != nil || len(got) != 0 {
			t.Errorf("%s: %v, %v", none, got, err)
		}
	}
	for hostile, says := range map[string]string{
		`{"a":1}`:     "cannot be read",
		`{"a":{}}`:    "cannot be read",
		`{"a":["b"]}`: "cannot be read",
		`{"x":"` + strings.Repeat(`","a`+strings.Repeat("x", 9)+`":"`, maxListValues) +
			`"}`: "more than the 32768 values",
	} {
		if got, err := texts(hostile); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40s: %v, %v", hostile, got, err)
		}
	}
	before, after := &CSVSpec{annotations: annotations{unread: unread{raw: []byte(`{"a":"b"}`)}}}, &CSVSpec{}
	if (&Demands{Spec: before}).Digest() == (&Demands{Spec: after}).Digest() {
		t.Error("they do not count in the digest")
	}
}

// TestWebhooks: a webhook without rules is one as well.
func TestWebhooks(t *testing.T) {
	csv, err := Decode[CSV]([]byte(
		`{"spec":{"webhookdefinitions":[{"type":"ConversionWebhook","conversionCRDs":["a.example.com","b.example.com"]},` +
			`{"type":"ValidatingAdmissionWebhook","rules":[{"resources":["a"]},{"resources":["b"]}]},{"rules":[]},{"conversionCRDs":["c.example.com"]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	demands := &Demands{Spec: &csv.Spec}
	hooks, err := demands.Webhooks()
	if err != nil || len(hooks) != 5 || hooks[0]["type"][0] != "ConversionWebhook" || len(hooks[0]["resources"]) != 0 ||
		hooks[2]["resources"][0] != "b" {
		t.Errorf("webhooks: %v, %v", hooks, err)
	}
	if names, err := demands.ConversionCRDs(); err != nil ||
		strings.Join(names, " ") != "a.example.com b.example.com c.example.com" {
		t.Errorf("conversionCRDs: %v, %v", names, err)
	}
	csv, err = Decode[CSV]([]byte(`{"spec":{"webhookdefinitions":[{"conversionCRDs":"a.example.com"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	demands = &Demands{Spec: &csv.Spec}
	if _, err := demands.ConversionCRDs(); err == nil {
		t.Error("a text is read as a list")
	}
}

// TestA4OversizedLists: of a list that is too large, only the reason is kept, and the rest of the object is read.
func TestA4OversizedLists(t *testing.T) {
	list := "[" + strings.Repeat("{},", maxListValues) + "{}]"
	csv, err := Decode[CSV]([]byte(`{"spec":{"minKubeVersion":"1.20","webhookdefinitions":` + list +
		`,"install":{"spec":{"clusterPermissions":` + list + `}}}}`))
	if err != nil || csv.Spec.MinKubeVersion != "1.20" {
		t.Fatalf("read as %+v, error %v", csv, err)
	}
	if n := len(csv.Spec.Webhooks.raw) + len(csv.Spec.Install.Spec.ClusterPermissions.raw); n > 0 {
		t.Errorf("%d bytes of the lists are kept", n)
	}
	demands := &Demands{Spec: &csv.Spec}
	if _, err := demands.Webhooks(); err == nil || !strings.Contains(err.Error(), "more than the 32768 values") {
		t.Errorf("webhooks: %v", err)
	}
	if _, err := demands.ClusterPermissions(); err == nil {
		t.Error("clusterPermissions are read")
	}
	if lists, err := demands.Permissions(); err != nil || len(lists) != 0 {
		t.Errorf("permissions: %v, %v", lists, err)
	}
}
