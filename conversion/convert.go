package conversion

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/rules/operatorpolicy"
)

// beyond is the content of the annotation on v1beta1 objects: fields of v1beta2, as they are there, that
// v1beta1 does not have or has no value for.
type beyond struct {
	// UpgradeApproval is Never, which v1beta1 shows as None.
	UpgradeApproval string `json:"upgradeApproval,omitempty"`
	// InstallPlanApproval is the value that conversion has set there, so that a later change of either form can be
	// recognised.
	InstallPlanApproval string          `json:"installPlanApproval,omitempty"`
	VersionRange        json.RawMessage `json:"versionRange,omitempty"`
	Deprecated          json.RawMessage `json:"deprecated,omitempty"`
	Consent             json.RawMessage `json:"consent,omitempty"`
	Catalog             json.RawMessage `json:"catalog,omitempty"`
	ApprovalWindows     json.RawMessage `json:"approvalWindows,omitempty"`
	Freezes             json.RawMessage `json:"freezes,omitempty"`
	MinimumAge          json.RawMessage `json:"minimumAge,omitempty"`
	Urgent              json.RawMessage `json:"urgent,omitempty"`
	MaximumWait         json.RawMessage `json:"maximumWait,omitempty"`
	Exceptions          json.RawMessage `json:"exceptions,omitempty"`
	StatusConfig        json.RawMessage `json:"statusConfig,omitempty"`
	// Deletion is a field of v1beta1, which a definition of another program does not have. Conversion never writes it.
	Deletion json.RawMessage `json:"deletion,omitempty"`
	// UpgradesProgressing of complianceConfig is left out where it has its default and another field of
	// complianceConfig is set, as in every policy that has passed admission; null means none.
	UpgradesProgressing json.RawMessage `json:"upgradesProgressing,omitempty"`
}

// Fields, as they stand in the JSON of both versions.
const (
	fieldSpec                = "spec"
	fieldStatus              = "status"
	fieldSubscription        = "subscription"
	fieldInstallPlanApproval = "installPlanApproval"
	fieldUpgradeApproval     = "upgradeApproval"
	fieldVersionRange        = "versionRange"
	fieldDeprecated          = "deprecated"
	fieldConsent             = "consent"
	fieldCatalog             = "catalog"
	fieldApprovalWindows     = "approvalWindows"
	fieldFreezes             = "freezes"
	fieldMinimumAge          = "minimumAge"
	fieldUrgent              = "urgent"
	fieldMaximumWait         = "maximumWait"
	fieldExceptions          = "exceptions"
	fieldStatusConfig        = "statusConfig"
	fieldDeletion            = "deletion"
	fieldComplianceConfig    = "complianceConfig"
	fieldUpgradesProgressing = "upgradesProgressing"

	automatic, none, never, manual = "Automatic", "None", "Never", "Manual"
	defaultUpgradesProgressing     = "Compliant"
)

// ToV1beta2 returns the content of a v1beta1 OperatorPolicy as v1beta2, without apiVersion. The argument is
// not modified, but shares parts with the result.
func ToV1beta2(content map[string]any) map[string]any {
	object := maps.Clone(content)
	var extra beyond
	carried := annotation(object)
	if carried != "" {
		// As in the text of a v1beta2 object that was made one of v1beta1 by hand.
		_, err := operatorpolicy.ParseDialect(carried)
		if err != nil && (decodeStrictly(carried, &extra) != nil ||
			!slices.Contains([]string{"", automatic, manual}, extra.InstallPlanApproval)) {
			return object // admission refuses what is in the annotation; nothing of it is lost until then
		}
		annotate(object, "")
	}
	spec, ok := object[fieldSpec].(map[string]any)
	if !ok {
		return object
	}
	spec = maps.Clone(spec)
	object[fieldSpec] = spec
	dialect := joinApproval(object, spec, extra.InstallPlanApproval)
	if extra.UpgradeApproval != "" && spec[fieldUpgradeApproval] == none {
		spec[fieldUpgradeApproval] = extra.UpgradeApproval
	}
	putBack(spec, fieldVersionRange, extra.VersionRange)
	putBack(spec, fieldDeprecated, extra.Deprecated)
	putBack(spec, fieldConsent, extra.Consent)
	putBack(spec, fieldCatalog, extra.Catalog)
	putBack(spec, fieldApprovalWindows, extra.ApprovalWindows)
	putBack(spec, fieldFreezes, extra.Freezes)
	putBack(spec, fieldDeletion, extra.Deletion)
	putBack(spec, fieldMinimumAge, extra.MinimumAge)
	putBack(spec, fieldUrgent, extra.Urgent)
	putBack(spec, fieldMaximumWait, extra.MaximumWait)
	putBack(spec, fieldExceptions, extra.Exceptions)
	if config, ok := spec[fieldComplianceConfig].(map[string]any); ok {
		config = maps.Clone(config)
		_, set := config[fieldUpgradesProgressing]
		switch {
		case set, string(extra.UpgradesProgressing) == "null":
		case extra.UpgradesProgressing != nil:
			putBack(config, fieldUpgradesProgressing, extra.UpgradesProgressing)
		case len(config) > 0:
			config[fieldUpgradesProgressing] = defaultUpgradesProgressing
		}
		spec[fieldComplianceConfig] = config
	}
	if _, set := spec[fieldStatusConfig]; !set {
		putBack(spec, fieldStatusConfig, extra.StatusConfig)
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
	carried := annotation(object)
	dialect, err := operatorpolicy.ParseDialect(carried)
	switch {
	case err != nil:
		return object // as in ToV1beta2, which restores it
	case carried != "":
		annotate(object, "")
	}
	spec, ok := object[fieldSpec].(map[string]any)
	if !ok {
		return object
	}
	spec = maps.Clone(spec)
	object[fieldSpec] = spec
	var extra beyond
	if spec[fieldUpgradeApproval] == never {
		extra.UpgradeApproval = never
		spec[fieldUpgradeApproval] = none
	}
	extra.InstallPlanApproval = splitApproval(spec, dialect)
	extra.VersionRange = takeOut(spec, fieldVersionRange)
	extra.Deprecated = takeOut(spec, fieldDeprecated)
	extra.Consent = takeOut(spec, fieldConsent)
	extra.Catalog = takeOut(spec, fieldCatalog)
	extra.ApprovalWindows = takeOut(spec, fieldApprovalWindows)
	extra.Freezes = takeOut(spec, fieldFreezes)
	extra.MinimumAge = takeOut(spec, fieldMinimumAge)
	extra.Urgent = takeOut(spec, fieldUrgent)
	extra.MaximumWait = takeOut(spec, fieldMaximumWait)
	extra.Exceptions = takeOut(spec, fieldExceptions)
	if len(contradictions(spec)) == 0 {
		extra.StatusConfig = takeOut(spec, fieldStatusConfig)
	}
	if config, ok := spec[fieldComplianceConfig].(map[string]any); ok {
		config = maps.Clone(config)
		spec[fieldComplianceConfig] = config
		extra.UpgradesProgressing = takeOut(config, fieldUpgradesProgressing)
		switch implied := len(config) > 0; {
		case implied && string(extra.UpgradesProgressing) == `"`+defaultUpgradesProgressing+`"`:
			extra.UpgradesProgressing = nil
		case implied && extra.UpgradesProgressing == nil:
			extra.UpgradesProgressing = json.RawMessage("null")
		}
	}
	if content := encode(extra); content != "{}" {
		annotate(object, content)
	}
	return object
}

// text returns a value that is a string, "" for any other.
func text(value any) string {
	s, _ := value.(string)
	return s
}

// takeOut removes a field and returns its JSON, nil where there was none.
func takeOut(from map[string]any, field string) json.RawMessage {
	value, ok := from[field]
	if !ok {
		return nil
	}
	delete(from, field)
	return json.RawMessage(encode(value))
}

// putBack sets a field that was taken out, unless it has been set since.
func putBack(to map[string]any, field string, value json.RawMessage) {
	if _, set := to[field]; set || value == nil {
		return
	}
	var decoded any
	if decode(value, &decoded) == nil { // it was decoded once already, as part of the annotation
		to[field] = decoded
	}
}

// annotation returns our annotation, "" if there is none.
func annotation(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	return text(annotations[operatorpolicy.ConversionAnnotation])
}

// annotate sets our annotation, or removes it, and leaves no empty map.
func annotate(object map[string]any, content string) {
	metadata, ok := object["metadata"].(map[string]any)
	if !ok && object["metadata"] != nil {
		return // not an object that the API server would send
	}
	metadata = maps.Clone(metadata)
	annotations, _ := metadata["annotations"].(map[string]any)
	annotations = maps.Clone(annotations)
	switch {
	case content != "" && annotations == nil:
		annotations = map[string]any{operatorpolicy.ConversionAnnotation: content}
	case content != "":
		annotations[operatorpolicy.ConversionAnnotation] = content
	default:
		delete(annotations, operatorpolicy.ConversionAnnotation)
	}
	if metadata == nil {
		metadata = map[string]any{}
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	} else {
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
