package olm

import (
	"bytes"
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
	if tooLargeToReport(raw) || apijson.Unmarshal(raw, (*[]SubscriptionCondition)(c)) != nil {
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
// Deployments. It is comparable with ==.
type SubscriptionConfig struct {
	// JSON is what is set, in one form: two configs have the same effect if theirs is the same. It is "" if nothing is
	// set, and the SHA-256 of what was written if that cannot be read.
	JSON string
	// Fault is why it cannot be read; "" if it can be.
	Fault string
}

// UnmarshalJSON never fails: what cannot be read is a Fault. Fields that are not known are one, since they may have any
// effect.
func (c *SubscriptionConfig) UnmarshalJSON(raw []byte) error {
	*c = SubscriptionConfig{}
	var typed v1alpha1.SubscriptionConfig
	if c.Fault = readConfig(raw, &typed); c.Fault != "" {
		digest := sha256.Sum256(raw)
		c.JSON = hex.EncodeToString(digest[:])
		return nil
	}
	written, err := json.Marshal(&typed)
	if err != nil {
		return fmt.Errorf("write the config of a Subscription: %w", err)
	}
	if !bytes.Equal(written, []byte("{}")) {
		c.JSON = string(written)
	}
	return nil
}

// readConfig decodes a config, and returns why it cannot be read, or "".
func readConfig(raw []byte, into *v1alpha1.SubscriptionConfig) string {
	if n, _ := apijson.Measure(raw); n > maxConfigValues || len(raw) > maxConfigBytes {
		return fmt.Sprintf("it has %d values in %d bytes, more than the %d values and %d bytes that are read",
			n, len(raw), maxConfigValues, maxConfigBytes)
	}
	if apijson.UnmarshalStrict(raw, into) == nil {
		return ""
	}
	*into = v1alpha1.SubscriptionConfig{}
	strict, err := kjson.UnmarshalStrict(raw, into) // slower; its errors name what is wrong
	switch {
	case err != nil:
		return text.Truncate(err.Error(), maxConfigFault)
	case len(strict) > 0:
		return text.Truncate(strict[0].Error(), maxConfigFault)
	}
	return ""
}

// ConfigParts are the parts of a config that rules read. Lists are sorted and without duplicates.
type ConfigParts struct {
	// Fields are the fields that are set, such as resources.
	Fields []string
	// Env are the names of environment variables.
	Env []string
	// EnvFrom are the objects whose keys become environment variables: configmap/NAME and secret/NAME.
	EnvFrom []string
	// Reserved are, by what a message calls them, the parts that change what the operator's containers run or read, or
	// what webhooks and nodes do about its pods: each annotation that is not harmless and each reserved variable, and
	// the lists envFrom, volumes and volumeMounts. The values are JSON.
	Reserved map[string]string
	// relatedImages are the values of environment variables whose names begin with RelatedImagePrefix, by name: of
	// several with one name the last counts. A value that comes from another object is "".
	relatedImages map[string]string
}

// Parts returns the parts of a config; none of one that cannot be read.
func (c *SubscriptionConfig) Parts() ConfigParts {
	p := ConfigParts{relatedImages: map[string]string{}, Reserved: map[string]string{}}
	var typed v1alpha1.SubscriptionConfig
	var fields map[string]json.RawMessage
	if c.Fault != "" || c.JSON == "" ||
		json.Unmarshal([]byte(c.JSON), &typed) != nil || json.Unmarshal([]byte(c.JSON), &fields) != nil {
		return p
	}
	p.Fields = slices.Sorted(maps.Keys(fields))
	for _, field := range []string{"envFrom", "volumes", "volumeMounts"} {
		if raw, ok := fields[field]; ok {
			p.Reserved[field] = string(raw)
		}
	}
	for key, value := range typed.Annotations {
		if !IsHarmlessAnnotation(key) {
			p.Reserved["annotations["+key+"]"] = value
		}
	}
	for i := range typed.Env {
		env := &typed.Env[i]
		p.Env = append(p.Env, env.Name)
		if strings.HasPrefix(env.Name, RelatedImagePrefix) {
			p.relatedImages[env.Name] = env.Value
		}
		if reserved(env) {
			raw, err := json.Marshal(env)
			if err != nil {
				panic(err) // built from decoded JSON
			}
			p.Reserved["env["+env.Name+"]"] += string(raw)
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
