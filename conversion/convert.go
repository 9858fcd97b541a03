// Package conversion serves OperatorPolicy in two versions. v1beta2 is the hub, in which policies are stored
// and judged; v1beta1 is a spoke with two dialects, the older one (installPlanApproval in the
// subscription) and the current one (upgradeApproval).
//
// Converters are pure and total: they work on the JSON of an object, change the few fields that differ and
// leave everything else, unknown fields included, as it is. A misspelt field has to reach admission, which
// refuses it; a converter that dropped it would store a policy that allows everything.
//
// What one version cannot express is kept in one annotation, absent if there is nothing to keep: on v1beta1
// objects the values of v1beta2, on v1beta2 objects the dialect in which the policy was written.
package conversion

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	kjson "sigs.k8s.io/json"

	policyv1beta1 "github.com/opgate/opgate/api/policy/v1beta1"
	policyv1beta2 "github.com/opgate/opgate/api/policy/v1beta2"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/rules/operatorpolicy"
)

// Fields, as they stand in the JSON of both versions.
const (
	fieldSpec                = "spec"
	fieldStatus              = "status"
	fieldSubscription        = "subscription"
	fieldInstallPlanApproval = "installPlanApproval"
	fieldUpgradeApproval     = "upgradeApproval"
	fieldStatusConfig        = "statusConfig"
	fieldDeletion            = "deletion"
	fieldComplianceConfig    = "complianceConfig"
	fieldUpgradesProgressing = "upgradesProgressing"

	automatic, none, never, manual = "Automatic", "None", "Never", "Manual"
	defaultUpgradesProgressing     = "Compliant"
)

// beyond are the fields of spec that v1beta1 does not have. The annotation on v1beta1 objects carries them as they are
// in v1beta2.
var beyond = []string{"versionRange", "planApproval", "deprecated", "consent", "catalog", "approvalWindows", "freezes",
	"minimumAge", "urgent", "maximumWait", "exceptions"}

// carried are what the annotation on v1beta1 objects may have besides.
var carried = append([]string{
	// Never, which v1beta1 shows as None.
	fieldUpgradeApproval,
	// The value that conversion has set there, so that a later change of either form can be recognised.
	fieldInstallPlanApproval,
	// Taken out unless complianceConfig contradicts it.
	fieldStatusConfig,
	// A field of v1beta1, which a definition of another program does not have. Conversion never writes it.
	fieldDeletion,
	// The one of complianceConfig. It is left out where it has its default and another field of complianceConfig is
	// set, as in every policy that has passed admission; null means none.
	fieldUpgradesProgressing,
}, beyond...)

// readCarried decodes the annotation on a v1beta1 object; ok is false for what conversion would not have written there.
func readCarried(annotation string) (extra map[string]any, ok bool) {
	if decodeStrictly(annotation, &extra) != nil {
		return nil, false
	}
	for field, value := range extra {
		_, isText := value.(string)
		isApproval := field == fieldUpgradeApproval || field == fieldInstallPlanApproval
		if !slices.Contains(carried, field) || isApproval && !isText {
			return nil, false
		}
	}
	return extra, slices.Contains([]string{"", automatic, manual}, text(extra[fieldInstallPlanApproval]))
}

// ToV1beta2 returns the content of a v1beta1 OperatorPolicy as v1beta2, without apiVersion. The argument is
// not modified, but shares parts with the result.
func ToV1beta2(content map[string]any) map[string]any {
	object := maps.Clone(content)
	var extra map[string]any
	if written := annotation(object); written != "" {
		// A dialect is in the text of a v1beta2 object that was made one of v1beta1 by hand.
		if _, err := operatorpolicy.ParseDialect(written); err != nil {
			var ok bool
			if extra, ok = readCarried(written); !ok {
				return object // admission refuses what is in the annotation; nothing of it is lost until then
			}
		}
		annotate(object, "")
	}
	spec, ok := object[fieldSpec].(map[string]any)
	if !ok {
		return object
	}
	spec = maps.Clone(spec)
	object[fieldSpec] = spec
	dialect := joinApproval(object, spec, text(extra[fieldInstallPlanApproval]))
	if approval := text(extra[fieldUpgradeApproval]); approval != "" && spec[fieldUpgradeApproval] == none {
		spec[fieldUpgradeApproval] = approval
	}
	for _, field := range beyond {
		move(spec, extra, field)
	}
	move(spec, extra, fieldDeletion)
	if config, ok := spec[fieldComplianceConfig].(map[string]any); ok {
		config = maps.Clone(config)
		progressing, isCarried := extra[fieldUpgradesProgressing]
		if !isCarried && len(config) > 0 {
			progressing = defaultUpgradesProgressing
		}
		if _, set := config[fieldUpgradesProgressing]; !set && progressing != nil {
			config[fieldUpgradesProgressing] = progressing
		}
		spec[fieldComplianceConfig] = config
	}
	if _, set := spec[fieldStatusConfig]; !set {
		move(spec, extra, fieldStatusConfig)
		overrule(spec)
	}
	if dialect != "" {
		annotate(object, encode(map[string]operatorpolicy.Dialect{"dialect": dialect}))
	}
	return object
}

// ToV1beta1 returns the content of a v1beta2 OperatorPolicy as v1beta1, without apiVersion. The argument is
// not modified, but shares parts with the result.
func ToV1beta1(content map[string]any) map[string]any {
	object := maps.Clone(content)
	written := annotation(object)
	dialect, err := operatorpolicy.ParseDialect(written)
	switch {
	case err != nil:
		return object // as in ToV1beta2, which restores it
	case written != "":
		annotate(object, "")
	}
	spec, ok := object[fieldSpec].(map[string]any)
	if !ok {
		return object
	}
	spec = maps.Clone(spec)
	object[fieldSpec] = spec
	extra := map[string]any{}
	if spec[fieldUpgradeApproval] == never {
		extra[fieldUpgradeApproval] = never
		spec[fieldUpgradeApproval] = none
	}
	if shown := splitApproval(spec, dialect); shown != "" {
		extra[fieldInstallPlanApproval] = shown
	}
	for _, field := range beyond {
		move(extra, spec, field)
	}
	if len(contradictions(spec)) == 0 {
		move(extra, spec, fieldStatusConfig)
	}
	if config, ok := spec[fieldComplianceConfig].(map[string]any); ok {
		config = maps.Clone(config)
		spec[fieldComplianceConfig] = config
		move(extra, config, fieldUpgradesProgressing)
		progressing, set := extra[fieldUpgradesProgressing]
		switch implied := len(config) > 0; {
		case implied && progressing == defaultUpgradesProgressing:
			delete(extra, fieldUpgradesProgressing)
		case implied && !set:
			extra[fieldUpgradesProgressing] = nil
		}
	}
	if len(extra) > 0 {
		annotate(object, encode(extra))
	}
	return object
}

// contradictions returns the fields of statusConfig that complianceConfig contradicts.
func contradictions(spec map[string]any) []string {
	earlier, _ := spec[fieldStatusConfig].(map[string]any)
	config, _ := spec[fieldComplianceConfig].(map[string]any)
	var fields []string
	for field, value := range earlier {
		if operatorpolicy.ContradictsStatusConfig(text(value), text(config[field])) {
			fields = append(fields, field)
		}
	}
	return fields
}

// overrule removes from a statusConfig that was carried what complianceConfig contradicts: only statusConfig that does
// not contradict is carried, so that complianceConfig was changed in v1beta1, which does not show the other.
func overrule(spec map[string]any) {
	fields := contradictions(spec)
	if len(fields) == 0 {
		return
	}
	earlier := maps.Clone(spec[fieldStatusConfig].(map[string]any))
	for _, field := range fields {
		delete(earlier, field)
	}
	spec[fieldStatusConfig] = earlier
	if len(earlier) == 0 {
		delete(spec, fieldStatusConfig)
	}
}

// Current returns the JSON of an OperatorPolicy as v1beta2, where the API server does not convert it because another
// program owns its definition. One of v1beta1 is converted, without its status, which that program writes and nothing
// here reads. Any other JSON is returned as it is: who decodes it reports what is wrong with it. Of two values of a
// field either may be meant, so that is an error.
func Current(raw []byte) ([]byte, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := decode(raw, &head); err != nil || head.APIVersion != policyv1beta1.GroupVersion.String() {
		return raw, nil //nolint:nilerr // see above
	}
	var content map[string]any
	if err := decodeStrictly(string(raw), &content); err != nil {
		return nil, err
	}
	delete(content, fieldStatus)
	content = ToV1beta2(content)
	content["apiVersion"] = policyv1beta2.GroupVersion.String()
	return json.Marshal(content)
}

// WithoutStatus returns the JSON of an OperatorPolicy without its status, for one that another program has written in a
// form of its own.
func WithoutStatus(raw []byte) ([]byte, error) {
	var content map[string]any
	if err := decodeStrictly(string(raw), &content); err != nil {
		return nil, err
	}
	delete(content, fieldStatus)
	return json.Marshal(content)
}

// text returns a value that is a string, "" for any other.
func text(value any) string {
	s, _ := value.(string)
	return s
}

// move moves a field, unless it is set where it moves to.
func move(to, from map[string]any, field string) {
	value, ok := from[field]
	if _, set := to[field]; ok && !set {
		to[field] = value
		delete(from, field)
	}
}

// annotation returns our annotation, "" if there is none.
func annotation(object map[string]any) string {
	return text(child(child(object, "metadata"), "annotations")[metakey.Conversion])
}

// annotate sets our annotation, or removes it, and leaves no empty map.
func annotate(object map[string]any, content string) {
	metadata := map[string]any{}
	maps.Copy(metadata, child(object, "metadata"))
	annotations := map[string]any{}
	maps.Copy(annotations, child(metadata, "annotations"))
	annotations[metakey.Conversion] = content
	if content == "" {
		delete(annotations, metakey.Conversion)
	}
	metadata["annotations"] = annotations
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	object["metadata"] = metadata
}

// encode returns the JSON of what came from JSON.
func encode(value any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // ">=1.0.0" stays readable
	if err := encoder.Encode(value); err != nil {
		return "{}" // what was decoded from JSON encodes
	}
	return string(bytes.TrimSpace(b.Bytes()))
}

// decode reads numbers as the API server does: whole ones stay whole.
func decode(text []byte, into any) error {
	return kjson.UnmarshalCaseSensitivePreserveInts(text, into)
}

// decodeStrictly also refuses unknown and duplicate fields.
func decodeStrictly(text string, into any) error {
	strict, err := kjson.UnmarshalStrict([]byte(text), into)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	return err
}
