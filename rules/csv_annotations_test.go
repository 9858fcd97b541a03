package rules

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules/constraint"
	"github.com/opgate/opgate/rules/operatorpolicy"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/rules/verdict"
)

// annotated returns the ClusterServiceVersion etcd.v0.9.2 with annotations beside its properties.
func annotated(t *testing.T, spec string, more map[string]string) *olm.CSV {
	t.Helper()
	annotations := map[string]string{metakey.Properties: properties("etcd", "0.9.2")}
	for key, value := range more {
		annotations[key] = value
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "etcd.v0.9.2",
		"uid": "1", "annotations": annotations}, "spec": json.RawMessage(spec)})
	if err != nil {
		t.Fatal(err)
	}
	csv, err := olm.Decode[olm.CSV](raw)
	if err != nil {
		t.Fatal(err)
	}
	return csv
}

// installedWith returns what is installed of it.
func installedWith(t *testing.T, spec string, more map[string]string) state.Installed {
	t.Helper()
	installed, original := installedBy(annotated(t, spec, more))
	if !original {
		t.Fatal("it is not installed here")
	}
	return installed
}

var proxy = map[string]string{"sidecar.istio.io/proxyImage": "evil.example/x:1"}

// TestC1Annotations writes annotations, which OLM copies into the pods, of a governed operator (attacks-3, c1).
func TestC1Annotations(t *testing.T) {
	contents := state.NamespaceContents{Policies: []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.2"))},
		CSVs: []state.Installed{installedWith(t, etcdSpec, nil)}}
	contents.Record = recorded(t, contents).Record
	changed := contents
	changed.CSVs = []state.Installed{installedWith(t, etcdSpec, proxy)} // in an outage
	earlier := changed
	earlier.Record = earlierRecord(t, contents.Record)
	for _, c := range []struct {
		name     string
		contents state.NamespaceContents
		old, new map[string]string
		byOLM    bool
		want     verdict.Decision
	}{
		{name: "attack: an image for the mesh", contents: contents, new: proxy, want: verdict.Deny},
		{name: "attack: nothing confines a container", contents: contents, want: verdict.Deny,
			new: map[string]string{"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}},
		{name: "control: OLM writes it", contents: contents, new: proxy, byOLM: true, want: verdict.Allow},
		{name: "control: a tool of GitOps tracks the object", contents: contents, want: verdict.Allow,
			new: map[string]string{"argocd.argoproj.io/tracking-id": "a", "reconcile.fluxcd.io/requestedAt": "b"}},
		{name: "control: what is recorded is written back", contents: changed, old: proxy, want: verdict.Allow},
		{name: "attack: another one is written back", contents: changed, old: proxy, want: verdict.Deny,
			new: map[string]string{"sidecar.istio.io/proxyImage": "evil.example/x:2"}},
		{name: "attack: a record of an earlier release knows no annotations", contents: earlier, old: nil, new: proxy,
			want: verdict.Deny},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := JudgeCSV(CSVInput{Old: annotated(t, etcdSpec, c.old), New: annotated(t, etcdSpec, c.new), ByOLM: c.byOLM,
				Namespace: state.NewNamespace("shop", c.contents)})
			if v.Decision != c.want || c.want != verdict.Allow && !strings.Contains(v.Refusal(), "(csv/frozen)") {
				t.Errorf("%s: %s, want %s", v.Decision, v.Refusal(), c.want)
			}
		})
	}
	if ns := state.NewNamespace("shop", changed); !ns.Drifted("etcd.v0.9.2") {
		t.Error("an annotation that was written in an outage is not reported")
	}
	properties := annotated(t, etcdSpec, nil)
	properties.Metadata.Annotations.Properties = strings.Replace(properties.Metadata.Annotations.Properties, "0.9.2", "0.9.3", 1)
	if v := JudgeCSV(CSVInput{Old: annotated(t, otherSpec, nil), New: properties,
		Namespace: state.NewNamespace("shop", contents)}); !strings.Contains(v.Refusal(), "(csv/frozen)") {
		t.Errorf("with the recorded spec other properties pass: %s", v.Refusal())
	}
}

// TestC4ConstraintOnAnnotations writes an annotation that a Constraint forbids after the creation (attacks-3, c4).
func TestC4ConstraintOnAnnotations(t *testing.T) {
	ns := state.NewNamespace("shop", state.NamespaceContents{Exists: true, CSVs: []state.Installed{installedWith(t, etcdSpec, nil)},
		Constraints: under(ruleOf("no-proxy", `!("sidecar.istio.io/proxyImage" in annotations)`, "", constraint.Require))})
	for _, c := range []struct {
		name     string
		old, new map[string]string
		want     verdict.Decision
	}{
		{name: "attack: it is added afterwards", new: proxy, want: verdict.Deny},
		{name: "control: another one", new: map[string]string{"a": "b"}, want: verdict.Allow},
		{name: "control: it was there before", old: proxy, new: proxy, want: verdict.Allow},
		{name: "attack: it was there before with another value", old: map[string]string{"sidecar.istio.io/proxyImage": "a"},
			new: proxy, want: verdict.Deny},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := JudgeCSV(CSVInput{Old: annotated(t, etcdSpec, c.old), New: annotated(t, etcdSpec, c.new), Namespace: ns})
			if v.Decision != c.want {
				t.Errorf("%s: %s, want %s", v.Decision, v.Refusal(), c.want)
			}
		})
	}
}

// earlierRecord returns a record as an earlier release wrote it: without the digest of annotations.
func earlierRecord(t *testing.T, r *state.InstallRecord) *state.InstallRecord {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(r.Encode()), &fields); err != nil {
		t.Fatal(err)
	}
	for _, o := range fields["operators"].([]any) {
		delete(o.(map[string]any), "annotations")
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	earlier, err := state.DecodeInstallRecord(state.RecordName(r.Namespace), string(raw))
	if err != nil {
		t.Fatal(err)
	}
	return earlier
}

// TestRecordOfAnEarlierRelease: a record without the digest of annotations gets that of what is installed, keeps what
// it knows of the spec, and is no reason to report or hold anything.
func TestRecordOfAnEarlierRelease(t *testing.T) {
	policies := []*operatorpolicy.Policy{policyFor("etcd", versions("etcd.v0.9.2"))}
	contents := state.NamespaceContents{Policies: policies, CSVs: []state.Installed{installedWith(t, etcdSpec, proxy)}}
	record := recorded(t, contents).Record
	contents.Record = earlierRecord(t, record)
	ns := state.NewNamespace("shop", contents)
	if ns.Drifted("etcd.v0.9.2") || !ns.InstalledAsRecorded("etcd.v0.9.2") {
		t.Error("what is installed counts as changed after the upgrade")
	}
	next := ns.NextRecord(false)
	if next.Encode() != record.Encode() {
		t.Errorf("it becomes\n%s\nwant\n%s", next.Encode(), record.Encode())
	}
	contents.CSVs = []state.Installed{installedWith(t, otherSpec, proxy)}
	if next := state.NewNamespace("shop", contents).NextRecord(false); next.Operators[0].Digest != record.Operators[0].Digest ||
		next.Operators[0].Annotations != record.Operators[0].Annotations {
		t.Errorf("the digest of other contents is recorded: %s", next.Encode())
	}
	contents.Record, contents.CSVs = record, []state.Installed{installedWith(t, etcdSpec, nil)}
	if next := state.NewNamespace("shop", contents).NextRecord(false); next.Operators[0].Annotations != record.Operators[0].Annotations {
		t.Errorf("the annotations of a later write are recorded: %s", next.Encode())
	}
}
