package olm

import (
	"fmt"
	"strings"
	"testing"
)

// TestImageParts reads references as container runtimes do (threat O25).
func TestImageParts(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0f", 32)
	for reference, want := range map[string][4]string{
		"quay.io/coreos/etcd:v3":                {"quay.io", "coreos/etcd", "v3", ""},
		"quay.io/coreos/etcd@" + digest:         {"quay.io", "coreos/etcd", "", digest},
		"quay.io/coreos/etcd:v3@" + digest:      {"quay.io", "coreos/etcd", "v3", digest},
		"mirror:5000/etcd":                      {"mirror:5000", "etcd", "", ""},
		"localhost/etcd":                        {"localhost", "etcd", "", ""},
		"Quay.io/etcd":                          {"quay.io", "etcd", "", ""},
		"etcd":                                  {"docker.io", "library/etcd", "", ""},
		"etcd:v3":                               {"docker.io", "library/etcd", "v3", ""},
		"coreos/etcd":                           {"docker.io", "coreos/etcd", "", ""},
		"docker.io/etcd":                        {"docker.io", "library/etcd", "", ""},
		"index.docker.io/coreos/etcd":           {"docker.io", "coreos/etcd", "", ""},
		"Coreos/etcd":                           {"coreos", "etcd", "", ""},
		"[::1]:5000/etcd":                       {"[::1]:5000", "etcd", "", ""},
		"":                                      {},
		"$(REGISTRY)/etcd:v3":                   {},
		"quay.io/etcd@sha256:0f":                {},
		"quay.io/etcd@" + digest + "@" + digest: {},
	} {
		image := Image{Reference: reference}
		registry, repository, tag, digest := image.Parts()
		if got := [4]string{registry, repository, tag, digest}; got != want {
			t.Errorf("%q is %q, want %q", reference, got, want)
		}
	}
}

// TestImages finds images wherever a ClusterServiceVersion names them, and reads none of one that names too many.
func TestImages(t *testing.T) {
	pod := `{"initContainers":[{"name":"i","image":"a"}],"volumes":[{"name":"v","image":{"reference":"d"}},{"name":"w"}],
		"containers":[{"name":"c","image":"b","env":[{"name":"RELATED_IMAGE_X","value":"c"},{"name":"RELATED_IMAGE_Y","valueFrom":{}},
		{"name":"RELATED_IMAGE_Z"},{"name":"OTHER","value":"z"}]}]}`
	spec := func(pod, related string) *Demands {
		csv, err := Decode[CSV](fmt.Appendf(nil,
			`{"spec":{"relatedImages":%s,"install":{"spec":{"deployments":[{"spec":{"template":{"spec":%s}}}]}}}}`,
			related, pod))
		if err != nil {
			t.Fatal(err)
		}
		return &Demands{Spec: &csv.Spec}
	}
	got, err := spec(pod, `[{"name":"r","image":"e"},{"name":"r","image":"e"}]`).Images()
	const want = `[{a initContainer i} {b container c} {c env RELATED_IMAGE_X} { env RELATED_IMAGE_Y} {d volume v} {e relatedImages r}]`
	if fmt.Sprint(got) != want || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprintf(`{"image":"a%d"}`, i)
	}
	for name, d := range map[string]*Demands{
		"too many":                spec(pod, "["+strings.Join(many, ",")+"]"),
		"too long":                spec(strings.Replace(pod, `"a"`, `"`+strings.Repeat("a", 600)+`"`, 1), `[]`),
		"of another type":         spec(pod, `{"image":1}`),
		"empty ones, in hundreds": spec(`{"containers":[`+strings.Repeat("{},", 40_000)+`{}]}`, `[]`),
	} {
		if got, err := d.Images(); err == nil || len(got) > 0 {
			t.Errorf("%s: got %d images and no error", name, len(got))
		}
	}
}
