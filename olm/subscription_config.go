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
