package change

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/internal/metakey"
)

// The properties of the bundles in testdata, as in status.bundleLookups.
const (
	properties092 = `{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.2"}},` +
		`{"type":"olm.package.required","value":{"packageName":"vault","versionRange":">=0.1.0"}}]}`
	properties094 = `{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"0.9.4"}},` +
		`{"type":"olm.package.required","value":{"packageName":"vault","versionRange":">=0.1.0"}}]}`
)

// configMap returns the ConfigMap that the unpack Job writes for a bundle in testdata.
func configMap(t testing.TB, bundle string, zipped bool) []byte {
	t.Helper()
	files, err := filepath.Glob("testdata/" + bundle + "/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("bundle %s: %v, %d files", bundle, err, len(files))
	}
	data, binaryData, annotations := map[string]string{}, map[string][]byte{}, map[string]string{}
	for _, file := range files {
		contents, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if zipped {
			binaryData[filepath.Base(file)] = gzipped(t, contents)
		} else {
			data[filepath.Base(file)] = string(contents)
		}
	}
	if zipped {
		annotations[metakey.ContentEncoding] = gzipBase64
	}
	return encode(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": data, "binaryData": binaryData,
		"metadata": map[string]any{"name": "unpacked", "annotations": annotations,
			"labels": map[string]string{"olm.managed": "true"}}})
}

func gzipped(t testing.TB, contents []byte) []byte {
	t.Helper()
	var buffer bytes.Buffer
	encoder := base64.NewEncoder(base64.StdEncoding, &buffer)
	w := gzip.NewWriter(encoder)
	if _, err := w.Write(contents); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := encoder.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

func encode(t testing.TB, value any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// unpacked returns the contents of a bundle in testdata as they are read from its ConfigMap.
func unpacked(t testing.TB, bundle, csv, properties, replaces string) *Contents {
	t.Helper()
	manifests, err := Unpack(configMap(t, bundle, true))
	if err != nil {
		t.Fatal(err)
	}
	c := ReadContents(csv, "", manifests)
	c.Resolve(properties, replaces)
	if c.Fault != "" {
		t.Fatal(c.Fault)
	}
	return c
}

// inline returns the manifests of the steps that OLM makes of a bundle in testdata (NewStepResourceFromBundle of
// operator-lifecycle-manager, package resolver): the typed ClusterServiceVersion, the other objects as they are, and
// derived ServiceAccounts, roles and bindings.
func inline(t testing.TB, bundle, namespace, properties, replaces string) []json.RawMessage {
	t.Helper()
	manifests, err := Unpack(configMap(t, bundle, false))
	if err != nil {
		t.Fatal(err)
	}
	var steps []json.RawMessage
	for _, raw := range manifests {
		var csv v1alpha1.ClusterServiceVersion
		if err := json.Unmarshal(raw, &csv); err != nil || csv.Kind != v1alpha1.ClusterServiceVersionKind {
			steps = append(steps, raw)
			continue
		}
		csv.Namespace, csv.Spec.Replaces = namespace, replaces
		csv.Annotations["operatorframework.io/properties"] = properties
		steps = append(steps, encode(t, csv))
		steps = append(steps, derivedSteps(t, &csv)...)
	}
	return append(steps, json.RawMessage(
		`{"apiVersion":"operators.coreos.com/v1alpha1","kind":"Subscription","metadata":{"name":"vault-stable-community-olm",`+
			`"creationTimestamp":null},"spec":{"source":"community","sourceNamespace":"olm","name":"vault","channel":"stable","startingCSV":"vault.v1",`+
			`"installPlanApproval":"Automatic"},"status":{"lastUpdated":null}}`))
}

// derivedSteps returns the objects that OLM derives from the permissions of a ClusterServiceVersion
// (RBACForClusterServiceVersion).
func derivedSteps(t testing.TB, csv *v1alpha1.ClusterServiceVersion) []json.RawMessage {
	t.Helper()
	var steps []json.RawMessage
	strategy := csv.Spec.InstallStrategy.StrategySpec
	add := func(prefix string, p v1alpha1.StrategyDeploymentPermissions, suffix string) {
		meta := metav1.ObjectMeta{Name: csv.Name + "-" + suffix,
			Labels: map[string]string{metakey.PermissionsHash: suffix, "olm.owner": csv.Name}}
		version := rbacv1.SchemeGroupVersion.String()
		subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: p.ServiceAccountName, Namespace: csv.Namespace}}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: prefix + "Role", Name: meta.Name}
		steps = append(steps,
			encode(t, rbacv1.Role{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: prefix + "Role"},
				ObjectMeta: meta, Rules: p.Rules}),
			encode(t, rbacv1.RoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: prefix + "RoleBinding"},
				ObjectMeta: meta,
				Subjects:   subjects, RoleRef: ref}),
			json.RawMessage(`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"`+
				p.ServiceAccountName+`"}}`))
	}
	for _, p := range strategy.ClusterPermissions {
		add("Cluster", p, csv.Namespace+"x8d7f")
	}
	for _, p := range strategy.Permissions {
		add("", p, csv.Namespace+"b9c2a")
	}
	return steps
}

// read returns the contents of manifests.
func read(t testing.TB, csv string, manifests []json.RawMessage) *Contents {
	t.Helper()
	c := ReadContents(csv, "", manifests)
	if c.Fault != "" {
		t.Fatal(c.Fault)
	}
	return c
}
