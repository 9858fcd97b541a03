package diff

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opgate/opgate/internal/cputime"
)

// TestH3CatalogsAreBounded has what a repository can put into a catalog so that reading it takes all memory, or does
// not end.
func TestH3CatalogsAreBounded(t *testing.T) {
	long := `"` + strings.Repeat("x", 1<<20) + `"`
	aliases := "[*a" + strings.Repeat(", *a", 100_000) + "]\n"
	csv := base64.StdEncoding.EncodeToString([]byte(`{"apiVersion": "operators.coreos.com/v1alpha1",
		"kind": "ClusterServiceVersion", "metadata": {"name": "etcd.v1"}, "spec": {}}`))
	object := `{"type": "olm.bundle.object", "value": {"data": "` + csv + `"}}`
	bundle := `{"schema":"olm.bundle","package":"etcd","name":"etcd.v1","properties":[` + object + `]}`
	manifest := base64.StdEncoding.EncodeToString([]byte("kind: &a " + long + "\nspec: " + aliases))
	write := func(t *testing.T, name, content string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		make func(t *testing.T, file string)
		// refused is a part of the refusal; empty if there is none.
		refused string
	}{
		{name: "control: JSON", make: func(t *testing.T, file string) { write(t, file, bundle) }},
		{name: "control: YAML with an alias", make: func(t *testing.T, file string) {
			write(t, file, "schema: olm.bundle\npackage: &a etcd\nname: etcd.v1\nproperties: ["+object+"]\nother: *a\n")
		}},
		{name: "attack: a long text with many aliases", refused: "too large", make: func(t *testing.T, file string) {
			write(t, file, "schema: olm.bundle\npackage: etcd\nname: etcd.v1\nproperties: &a "+long+"\nother: "+aliases)
		}},
		{name: "attack: the same after JSON", refused: "too large", make: func(t *testing.T, file string) {
			write(t, file, bundle+"\n---\nschema: olm.bundle\nname: &a "+long+"\nother: "+aliases)
		}},
		{name: "attack: a manifest with many aliases", refused: "too large", make: func(t *testing.T, file string) {
			write(t, file, strings.Replace(bundle, csv, manifest, 1))
		}},
		{name: "attack: a pipe", refused: "not a regular file", make: func(t *testing.T, file string) {
			if err := syscall.Mkfifo(file, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "attack: a link to a file without an end", refused: "not a regular file",
			make: func(t *testing.T, file string) {
				if err := os.Symlink("/dev/zero", file); err != nil {
					t.Fatal(err)
				}
			}},
		{name: "attack: a file that is all holes", refused: "more than the", make: func(t *testing.T, file string) {
			write(t, file, bundle)
			if err := os.Truncate(file, maxCatalogFile+1); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			tc.make(t, filepath.Join(dir, "catalog.yaml"))
			begin := cputime.Used()
			r, err := fromCatalog(t.Context(), &options{catalog: dir, to: "etcd.v1"})
			if took := cputime.Used() - begin; took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
			fault := ""
			switch {
			case err != nil:
				fault = err.Error()
			case r.Set != nil:
				fault = r.Fault
			}
			if (tc.refused == "") != (fault == "") || !strings.Contains(fault, tc.refused) {
				t.Errorf("refused with %.300q, want %q", fault, tc.refused)
			}
		})
	}
}
