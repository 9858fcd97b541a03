package olm

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/text"
)

// Subscription is operators.coreos.com/v1alpha1 Subscription.
type Subscription struct {
	Metadata ObjectMeta         `json:"metadata"`
	Spec     SubscriptionSpec   `json:"spec"`
	Status   SubscriptionStatus `json:"status"`
}

// SubscriptionSpec is comparable with ==.
type SubscriptionSpec struct {
	// Package is spec.name: the package subscribed to, not the name of the object.
	Package             string `json:"name"`
	Channel             string `json:"channel"`
	Source              string `json:"source"`
	SourceNamespace     string `json:"sourceNamespace"`
	StartingCSV         string `json:"startingCSV"`
	InstallPlanApproval string `json:"installPlanApproval"`

	Config SubscriptionConfig `json:"config"`
}

// Catalog returns the catalog that the Subscription takes its package from.
func (s *Subscription) Catalog() Catalog {
	return Catalog{Namespace: s.Spec.SourceNamespace, Name: s.Spec.Source}
}

// SubscriptionStatus is the status that OLM writes.
type SubscriptionStatus struct {
	// CurrentCSV is the version that the Subscription is moving to, InstalledCSV the installed one.
	CurrentCSV   string `json:"currentCSV"`
	InstalledCSV string `json:"installedCSV"`
	State        string `json:"state"`
	LastUpdated  string `json:"lastUpdated"`
	// InstallPlan is the plan that installs CurrentCSV.
	InstallPlan struct {
		Name string `json:"name"`
	} `json:"installPlanRef"`
	Conditions SubscriptionConditions `json:"conditions"`
}

// SubscriptionCondition is an item of status.conditions. LastTransitionTime may be empty.
type SubscriptionCondition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
	LastTransitionTime string `json:"lastTransitionTime"`
}

// SubscriptionConditions are only reported on: there are none if they are too large to be read, or of another type.
type SubscriptionConditions []SubscriptionCondition

// UnmarshalJSON counts the values first.
func (c *SubscriptionConditions) UnmarshalJSON(raw []byte) error {
	*c = nil
	n, _ := apijson.Measure(raw)
	if n > maxReportedValues || len(raw) > maxReportedBytes || apijson.Unmarshal(raw, (*[]SubscriptionCondition)(c)) != nil {
		*c = nil
	}
	return nil
}

// Condition returns the condition of a type, nil if there is none or it is not True: OLM's conditions are True for what
// is wrong or in progress.
func (s *Subscription) Condition(conditionType string) *SubscriptionCondition {
	for i := range s.Status.Conditions {
		if c := &s.Status.Conditions[i]; c.Type == conditionType && c.Status == "True" {
			return c
		}
	}
	return nil
}

// Follows reports whether a Subscription has installed, or moves to, a ClusterServiceVersion.
func (s *Subscription) Follows(csv string) bool {
	return csv != "" && (s.Status.InstalledCSV == csv || s.Status.CurrentCSV == csv)
}

// StateUpgradePending is status.state while a plan for the Subscription is not complete: there is no
// ClusterServiceVersion of the name in CurrentCSV, not even a copy.
const StateUpgradePending = "UpgradePending"

// The values of installPlanApproval. OLM treats everything that is not exactly Manual, empty included, as Automatic.
const (
	ApprovalAutomatic = "Automatic"
	ApprovalManual    = "Manual"
)

// Catalog names a CatalogSource.
type Catalog struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// RelatedImagePrefix begins the names of environment variables with images that an operator runs. OLM lets spec.config
// of a Subscription replace the value that the ClusterServiceVersion has.
const RelatedImagePrefix = "RELATED_IMAGE_"

// SubscriptionConfig is spec.config of a Subscription: what OLM changes in all containers and pods of the operator's
// Deployments. It is kept as it is written, and decoded where something depends on it. Two are comparable with ==
// in either form: what is written alike has the same effect.
type SubscriptionConfig struct {
	// Written is its JSON, if it has not been read.
	Written string
	// JSON is what is set, in one form: two configs have the same effect if theirs is the same. It is "" if nothing is
	// set, and the SHA-256 of what was written if that cannot be read.
	JSON string
	// Fault is why it cannot be read; "" if it can be.
	Fault string
}

// UnmarshalJSON never fails: what is too large to be kept is a Fault.
func (c *SubscriptionConfig) UnmarshalJSON(raw []byte) error {
	*c = SubscriptionConfig{}
	switch {
	case len(raw) > maxConfigBytes:
		*c = unreadable(raw, configSize(raw))
	case string(raw) != "null" && string(raw) != "{}":
		c.Written = string(raw)
	}
	return nil
}

// Read returns the config as it is read. What cannot be read is a Fault, and so are fields that are not known, since
// they may have any effect.
func (c *SubscriptionConfig) Read() SubscriptionConfig {
	if c.Written == "" {
		return *c
	}
	var typed v1alpha1.SubscriptionConfig
	if fault := readConfig(c.Written, &typed); fault != "" {
		return unreadable([]byte(c.Written), fault)
	}
	written, err := json.Marshal(&typed)
	if err != nil {
		panic(err) // built from decoded JSON
	}
	if bytes.Equal(written, []byte("{}")) {
		return SubscriptionConfig{}
	}
	return SubscriptionConfig{JSON: string(written)}
}

func unreadable(raw []byte, fault string) SubscriptionConfig {
	digest := sha256.Sum256(raw)
	return SubscriptionConfig{JSON: hex.EncodeToString(digest[:]), Fault: fault}
}

// configSize returns why a config is too large to be read, or "".
func configSize(raw []byte) string {
	if n, _ := apijson.Measure(raw); n > maxConfigValues || len(raw) > maxConfigBytes {
		return fmt.Sprintf("it has %d values in %d bytes, more than the %d values and %d bytes that are read",
			n, len(raw), maxConfigValues, maxConfigBytes)
	}
	return ""
}

// readConfig decodes a config, and returns why it cannot be read, or "".
func readConfig[T any](written string, into *T) string {
	raw := []byte(written)
	if fault := configSize(raw); fault != "" {
		return fault
	}
	if apijson.UnmarshalStrict(raw, into) == nil {
		return ""
	}
	*into = *new(T)                                 // of which a part was read
	strict, err := kjson.UnmarshalStrict(raw, into) // slower; its errors name what is wrong
	switch {
	case err != nil:
		return text.Truncate(err.Error(), maxConfigFault)
	case len(strict) > 0:
		return text.Truncate(strict[0].Error(), maxConfigFault)
	}
	return ""
}

// reservedConfig is a config of which only what Reserved looks into is decoded.
type reservedConfig struct {
	Annotations map[string]string `json:"annotations"`
	Env         []corev1.EnvVar   `json:"env"`

	EnvFrom      json.RawMessage `json:"envFrom"`
	Volumes      json.RawMessage `json:"volumes"`
	VolumeMounts json.RawMessage `json:"volumeMounts"`

	Affinity     json.RawMessage `json:"affinity"`
	NodeSelector json.RawMessage `json:"nodeSelector"`
	Resources    json.RawMessage `json:"resources"`
	Selector     json.RawMessage `json:"selector"`
	Tolerations  json.RawMessage `json:"tolerations"`
}

// Reserved returns, by what a message calls them, the parts of a config that change what the operator's containers run
// or read, or what webhooks and nodes do about its pods: each annotation that is not harmless and each reserved variable,
// and the lists envFrom, volumes and volumeMounts. The values are JSON. Fault is why these cannot be read.
func (c *SubscriptionConfig) Reserved() (parts map[string]string, fault string) {
	written := cmp.Or(c.Written, c.JSON)
	if c.Fault != "" || written == "" {
		return nil, c.Fault
	}
	var config reservedConfig
	if fault := readConfig(written, &config); fault != "" {
		return nil, fault
	}
	parts = map[string]string{}
	for field, list := range map[string]json.RawMessage{"envFrom": config.EnvFrom, "volumes": config.Volumes,
		"volumeMounts": config.VolumeMounts} {
		if n, _ := apijson.Measure(list); n > 0 {
			parts[field] = string(list)
		}
	}
	for key, value := range config.Annotations {
		if !IsHarmlessAnnotation(key) {
			parts["annotations["+key+"]"] = value
		}
	}
	for i := range config.Env {
		env := &config.Env[i]
		if reserved(env) {
			raw, err := json.Marshal(env)
			if err != nil {
				panic(err) // built from decoded JSON
			}
			parts["env["+env.Name+"]"] += string(raw)
		}
	}
	return parts, ""
}

// ConfigParts are the parts of a config that rules read. Lists are sorted and without duplicates.
type ConfigParts struct {
	// Fields are the fields that are set, such as resources.
	Fields []string
	// Env are the names of environment variables.
	Env []string
	// EnvFrom are the objects whose keys become environment variables: configmap/NAME and secret/NAME.
	EnvFrom []string
	// relatedImages are the values of environment variables whose names begin with RelatedImagePrefix, by name: of
	// several with one name the last counts. A value that comes from another object is "".
	relatedImages map[string]string
}

// Parts returns the parts of a config; none of one that cannot be read.
func (c *SubscriptionConfig) Parts() ConfigParts {
	p := ConfigParts{relatedImages: map[string]string{}}
	read := c.Read()
	var typed v1alpha1.SubscriptionConfig
	var fields map[string]json.RawMessage
	if read.Fault != "" || read.JSON == "" ||
		json.Unmarshal([]byte(read.JSON), &typed) != nil || json.Unmarshal([]byte(read.JSON), &fields) != nil {
		return p
	}
	p.Fields = slices.Sorted(maps.Keys(fields))
	for i := range typed.Env {
		env := &typed.Env[i]
		p.Env = append(p.Env, env.Name)
		if strings.HasPrefix(env.Name, RelatedImagePrefix) {
			p.relatedImages[env.Name] = env.Value
		}
	}
	for _, from := range typed.EnvFrom {
		if from.ConfigMapRef != nil {
			p.EnvFrom = append(p.EnvFrom, "configmap/"+from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			p.EnvFrom = append(p.EnvFrom, "secret/"+from.SecretRef.Name)
		}
	}
	slices.Sort(p.Env)
	slices.Sort(p.EnvFrom)
	p.Env, p.EnvFrom = slices.Compact(p.Env), slices.Compact(p.EnvFrom)
	return p
}

// imageName matches names of variables with an image, such as RELATED_IMAGE_ETCD, ETCD_IMAGE and OPERATOR_IMG.
var imageName = regexp.MustCompile(`(?i)(^|_)(IMAGES?|IMG)(_|$)`)

// reserved reports whether a variable may exchange an image, makes the loader of programs load others (ld.so), or has
// its value from a Secret or a ConfigMap, which consent counts as a change of the operator's pods.
func reserved(env *corev1.EnvVar) bool {
	return imageName.MatchString(env.Name) || strings.HasPrefix(env.Name, "LD_") || env.ValueFrom != nil &&
		(env.ValueFrom.SecretKeyRef != nil || env.ValueFrom.ConfigMapKeyRef != nil)
}
