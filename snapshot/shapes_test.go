//go:build !race

package snapshot_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/operator-framework/api/crds"
	"github.com/opgate/opgate/manifests/crd"
	"github.com/opgate/opgate/snapshot"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// shape is an object of which one field is filled. What fills it is written for a size in bytes.
type shape struct {
	// name is the path of the field, and what it holds.
	name string
	// object is the JSON of the object, with hole where the field is.
	object []byte
	fill   func(size int) string
}

// hole is a string in the JSON of an object, counter one that differs in each element of a list.
const (
	hole    = `"@hole@"`
	counter = "@counter@"
)

// of returns the object in a size.
func (s *shape) of(size int) []byte {
	return bytes.Replace(s.object, []byte(hole), []byte(s.fill(size)), 1)
}

// Fields deeper than maxShapeDepth are filled with their parents.
const maxShapeDepth = 5

// extension has the fields of ClusterExtensions and ClusterObjectSets that are read, and lists of what is not.
type extension struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Namespace string `json:"namespace"`
		Source    struct {
			SourceType string `json:"sourceType"`
			Catalog    struct {
				PackageName string   `json:"packageName"`
				Version     string   `json:"version"`
				Channels    []string `json:"channels"`
			} `json:"catalog"`
		} `json:"source"`
		LifecycleState string              `json:"lifecycleState"`
		Phases         []map[string]string `json:"phases"`
	} `json:"spec"`
	Status struct {
		Install struct {
			Bundle struct {
				Name    string `json:"name"`
				Version string `json:"version"`
			} `json:"bundle"`
		} `json:"install"`
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// schemaOf returns the schema of a kind: of its definition if it has one, else that of its Go type.
func schemaOf(t *testing.T, kind *snapshot.Kind) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	types := map[*snapshot.Kind]any{snapshot.Namespaces: corev1.Namespace{}, snapshot.Pods: corev1.Pod{},
		snapshot.Services: corev1.Service{},
		snapshot.Records:  corev1.ConfigMap{}, snapshot.Deployments: appsv1.Deployment{},
		snapshot.CustomResourceDefinitions: apiextensionsv1.CustomResourceDefinition{},
		snapshot.ClusterExtensions:         extension{}, snapshot.ClusterObjectSets: extension{}}
	root := &apiextensionsv1.JSONSchemaProps{}
	if of, ok := types[kind]; ok {
		*root = schemaOfType(reflect.TypeOf(of), nil)
	} else {
		definition := definitionOf(t, kind)
		for i := range definition.Spec.Versions {
			if v := &definition.Spec.Versions[i]; v.Name == kind.Version {
				root = v.Schema.OpenAPIV3Schema
			}
		}
	}
	if len(root.Properties) == 0 {
		t.Fatalf("%s: the schema has no properties", kind.Resource)
	}
	metadata := schemaOfType(reflect.TypeFor[metav1.ObjectMeta](), nil)
	owner := metadata.Properties["ownerReferences"].Items.Schema
	owner.Required = []string{"apiVersion", "kind", "name", "uid"}
	// short, or written by the API server
	for _, name := range []string{"name", "generateName", "namespace", "uid", "resourceVersion", "selfLink"} {
		delete(metadata.Properties, name)
	}
	root.Properties["metadata"] = metadata
	delete(root.Properties, "apiVersion")
	delete(root.Properties, "kind")
	return root
}

func definitionOf(t *testing.T, kind *snapshot.Kind) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	olms := map[*snapshot.Kind]*apiextensionsv1.CustomResourceDefinition{snapshot.Subscriptions: crds.Subscription(),
		snapshot.InstallPlans:           crds.InstallPlan(),
		snapshot.ClusterServiceVersions: crds.ClusterServiceVersion(), snapshot.OperatorGroups: crds.OperatorGroup(),
		snapshot.OperatorConditions: crds.OperatorCondition(),
		snapshot.CatalogSources:     crds.CatalogSource()}
	if d := olms[kind]; d != nil {
		return d
	}
	text, err := crd.Definitions.ReadFile(kind.Group + "_" + kind.Resource + ".yaml")
	if err != nil {
		t.Fatalf("a new kind needs a schema: %v", err)
	}
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// schemaOfType returns a schema of what a Go type encodes to. Of a recursive type it has one level.
func schemaOfType(of reflect.Type, seen []reflect.Type) (s apiextensionsv1.JSONSchemaProps) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	free := func() apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}
	}
	below := func(of reflect.Type, seen ...reflect.Type) *apiextensionsv1.JSONSchemaProps {
		return new(schemaOfType(of, seen))
	}
	if slices.Contains(seen, of) {
		return free()
	}
	if _, own := reflect.New(of).Interface().(json.Unmarshaler); own && of.Kind() == reflect.Struct {
		if strings.HasSuffix(of.Name(), "Time") {
			return apiextensionsv1.JSONSchemaProps{Type: "string", Format: "date-time"}
		}
		return free()
	}
	switch of.Kind() {
	case reflect.String:
		s.Type = "string"
	case reflect.Slice:
		s.Type, s.Items = "array", &apiextensionsv1.JSONSchemaPropsOrArray{Schema: below(of.Elem(), seen...)}
		if of.Elem().Kind() == reflect.Uint8 {
			s = apiextensionsv1.JSONSchemaProps{Type: "string"}
		}
	case reflect.Map:
		s.Type, s.AdditionalProperties = "object",
			&apiextensionsv1.JSONSchemaPropsOrBool{Schema: below(of.Elem(), seen...)}
	case reflect.Struct:
		s.Type, s.Properties = "object", map[string]apiextensionsv1.JSONSchemaProps{}
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch name {
			case "-":
			case "":
				for embedded, property := range schemaOfType(field.Type, append(seen, of)).Properties {
					s.Properties[embedded] = property
				}
			default:
				s.Properties[name] = schemaOfType(field.Type, append(seen, of))
			}
		}
	case reflect.Bool:
		s.Type = "boolean"
	default:
		s.Type = "integer"
	}
	return s
}

// shapesOf returns the shapes of a kind: each field that can be large, with all that can fill it.
func shapesOf(t *testing.T, kind *snapshot.Kind) (shapes []shape) {
	t.Helper()
	root := schemaOf(t, kind)
	var walk func(path []string, s *apiextensionsv1.JSONSchemaProps)
	walk = func(path []string, s *apiextensionsv1.JSONSchemaProps) {
		for what, fill := range fills(s) {
			// such a text is decoded by nothing
			if len(path) == 0 || len(path) > 4 && s.Type == "string" && what != "text" {
				continue
			}
			content := value(root, path).(map[string]any)
			if content["metadata"] == nil {
				content["metadata"] = map[string]any{}
			}
			metadata := content["metadata"].(map[string]any)
			metadata["namespace"], metadata["name"], metadata["uid"], metadata["resourceVersion"] = "shop", "@name@",
				"@name@", "1"
			object, err := json.Marshal(content)
			if err != nil {
				t.Fatal(err)
			}
			shapes = append(shapes, shape{strings.Join(path, ".") + " (" + what + ")", object, fill})
		}
		if len(path) == maxShapeDepth {
			return
		}
		for name := range s.Properties {
			walk(append(slices.Clone(path), name), new(s.Properties[name]))
		}
		if s.Items != nil {
			walk(append(slices.Clone(path), "[]"), s.Items.Schema)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			walk(append(slices.Clone(path), "*"), s.AdditionalProperties.Schema)
		}
	}
	walk([]string{}, root)
	slices.SortFunc(shapes, func(a, b shape) int { return strings.Compare(a.name, b.name) })
	return shapes
}

// value returns the smallest value of a schema, with the hole at a path.
func value(s *apiextensionsv1.JSONSchemaProps, path []string) any {
	if path != nil && len(path) == 0 { // nil: there is no hole
		return strings.Trim(hole, `"`)
	}
	var step string
	var rest []string
	if path != nil {
		step, rest = path[0], path[1:]
	}
	switch {
	case step == "[]":
		return []any{value(s.Items.Schema, rest)}
	case step == "*":
		return map[string]any{"k": value(s.AdditionalProperties.Schema, rest)}
	case s.Type == "array":
		return []any{}
	case s.Type == "object":
		object := map[string]any{}
		for _, name := range s.Required {
			object[name] = value(new(s.Properties[name]), nil)
		}
		if step != "" {
			object[step] = value(new(s.Properties[step]), rest)
		}
		return object
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Format == "date-time":
		return "2026-11-24T00:00:00Z"
	case s.Type == "string":
		return strings.Repeat("x", int(max(0, valueOf(s.MinLength))))
	case s.Type == "boolean":
		return true
	case s.Type == "integer" || s.Type == "number":
		return int64(max(1, valueOf(s.Minimum)))
	}
	return map[string]any{}
}

func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// repeated writes a list or an object of as many parts as fit into a size, at most a number of them.
func repeated(open, part, end string, most int) func(size int) string {
	return func(size int) string {
		var b strings.Builder
		b.WriteString(open)
		for i := 0; i < most && b.Len() < size; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strings.ReplaceAll(part, counter, strconv.Itoa(i)))
		}
		return b.String() + end
	}
}

// fills returns what can fill a field, as the schema admits it.
func fills(s *apiextensionsv1.JSONSchemaProps) map[string]func(size int) string {
	const unlimited = 1 << 30
	free := map[string]func(size int) string{
		"text":          text(`xxxxxxxx`, unlimited),
		"empty objects": repeated("[", "{}", "]", unlimited),
		"empty texts":   repeated("[", `""`, "]", unlimited),
		"short texts":   repeated("[", `"`+counter+`"`, "]", unlimited),
		"keys":          repeated("{", `"k`+counter+`":0`, "}", unlimited),
		"deep lists":    repeated("[", strings.Repeat("[", 900)+strings.Repeat("]", 900), "]", unlimited),
		"deep objects":  repeated("[", strings.Repeat(`{"a":`, 900)+"0"+strings.Repeat("}", 900), "]", unlimited),
	}
	most := func(n *int64) int {
		if n == nil {
			return unlimited
		}
		return int(*n)
	}
	switch {
	case len(s.Enum) > 0 || s.Format != "":
		return nil
	case s.Type == "string":
		return map[string]func(size int) string{
			"text":  text("xxxxxxxx", most(s.MaxLength)),
			"names": text(counter+",", most(s.MaxLength)),
			"properties": inText(repeated(`{"properties":[`, `{"type":"t`+counter+`","value":{}}`, "]}", unlimited),
				most(s.MaxLength)),
			"package and properties": inText(
				repeated(`{"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"1.0.0"}},`,
					`{"type":"olm.gvk","value":{"kind":"`+counter+`"}}`, "]}", unlimited), most(s.MaxLength)),
			"rules": inText(repeated("[", `{"type":"olm.constraint","value":{"rule":"`+counter+` != 1","message":"m"}}`,
				"]", 256), most(s.MaxLength)),
		}
	case s.Type == "array":
		item := "null"
		if s.Items != nil {
			element := value(s.Items.Schema, nil)
			if object, ok := element.(map[string]any); ok {
				for _, key := range s.XListMapKeys {
					if _, named := object[key].(string); named || s.Items.Schema.Properties[key].Type == "string" {
						object[key] = counter
					}
				}
			}
			encoded, _ := json.Marshal(element) // of decoded values
			item = string(encoded)
		}
		lists := map[string]func(size int) string{"elements": repeated("[", item, "]", most(s.MaxItems))}
		if s.Items != nil && s.Items.Schema.Type == "string" && len(s.Items.Schema.Enum) == 0 {
			lists["short texts"] = repeated("[", `"`+counter+`"`, "]", most(s.MaxItems))
			lists["lists of names"] = func(size int) string {
				n := min(most(s.MaxItems), 100)
				return repeated("[", text(counter+",", most(s.Items.Schema.MaxLength))(size/n), "]", n)(size)
			}
		}
		lists["1,000 elements"] = repeated("[", item, "]", min(1_000, most(s.MaxItems)))
		return lists
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		part, _ := json.Marshal(value(s.AdditionalProperties.Schema, nil)) // of decoded values
		return map[string]func(size int) string{
			"keys": repeated("{", `"k`+counter+`":`+string(part), "}", most(s.MaxProperties)),
			"keys of OLM": repeated("{", `"operators.coreos.com/k`+counter+`":`+string(part), "}",
				most(s.MaxProperties)),
			"keys of Opgate": repeated("{", `"opgate.io/k`+counter+`":`+string(part), "}", most(s.MaxProperties)),
			"one longest key": func(size int) string {
				return `{"` + strings.Repeat("k", size) + `":` + string(part) +
					"}"
			},
		}
	case s.Type == "object" && valueOf(s.XPreserveUnknownFields) && len(s.Properties) > 0:
		required, _ := json.Marshal(value(s, nil)) // of decoded values
		open := strings.TrimSuffix(string(required), "}")
		if len(s.Required) > 0 {
			open += ","
		}
		return map[string]func(size int) string{"unknown keys": repeated(open, `"u`+counter+`":0`, "}", unlimited)}
	case s.Type == "object" && len(s.Properties) > 0 || s.Type == "boolean" || s.Type == "integer" ||
		s.Type == "number":
		return nil
	}
	return free
}

// text writes a JSON string of repeated parts.
func text(part string, most int) func(size int) string {
	return func(size int) string {
		var b strings.Builder
		for i := 0; b.Len() < min(size, most); i++ {
			b.WriteString(strings.ReplaceAll(part, counter, strconv.Itoa(i)))
		}
		return strconv.Quote(b.String()[:min(b.Len(), most)])
	}
}

// inText writes a JSON text as a JSON string, if it is not too long for the field.
func inText(of func(size int) string, most int) func(size int) string {
	return func(size int) string {
		if written := of(size * 4 / 5); len(written) <= most {
			return strconv.Quote(written)
		}
		return `""`
	}
}
