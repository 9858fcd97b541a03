package olm

import (
	"fmt"

	"github.com/opgate/opgate/internal/apijson"
)

// DecodePlan reads the JSON of an InstallPlan; one with more values than maxPlanValues is an error.
func DecodePlan(raw []byte) (*InstallPlan, error) {
	if n, _ := apijson.Measure(raw); n > maxPlanValues {
		return nil, fmt.Errorf("the InstallPlan holds %d values, at most %d are read", n, maxPlanValues)
	}
	return Decode[InstallPlan](raw)
}

// Decode reads the JSON of an object of OLM; of an InstallPlan see DecodePlan.
func Decode[T any](raw []byte) (*T, error) {
	into := new(T)
	if err := apijson.Unmarshal(raw, into); err != nil {
		return nil, fmt.Errorf("decode %T: %w", *into, err)
	}
	return into, nil
}

// Limits of what is read of OLM's objects, which may be as large as etcd accepts (1.5 MiB) and are written by tenants,
// or come from any catalog. A list of empty objects takes a hundred times its size when decoded, so values are counted
// first. What exceeds a limit is not read, and holds whatever depends on it. The limit of a whole review
// is in package admission. docs/performance.md lists all of them.
const (
	// MaxValues bounds the JSON of the properties of a bundle: elements of lists and members of objects, at any depth.
	// The largest operators in use have some 200 kinds.
	MaxValues = 32_768
	// MaxProperties bounds the number of properties of one bundle.
	MaxProperties = 4096
	// maxListValues and maxListBytes bound each of the lists clusterPermissions, permissions and webhookdefinitions,
	// and the annotations, of a ClusterServiceVersion, and an RBAC object of a plan. The largest operators in use have
	// some 700 rules, of twenty values and 150 bytes each.
	maxListValues = MaxValues
	maxListBytes  = 256 << 10
	// maxImages bounds the images of the Deployments of a ClusterServiceVersion, and those in spec.relatedImages;
	// maxImageText each text of one, in bytes. The largest operators in use name some 200.
	maxImages    = 1000
	maxImageText = 512
	// maxAnnotation bounds one annotation of a ClusterServiceVersion that CEL rules may read, as JSON in bytes.
	maxAnnotation = 1 << 10
	// maxPlanValues bounds a whole InstallPlan, in which a manifest is one value. One step has about 12.
	maxPlanValues = 131_072
	// MaxPlanEntries bounds the total of names, steps and bundle lookups of a plan. The largest plans in use have some
	// 400.
	MaxPlanEntries = 16_384
	// maxMessage bounds the message of a plan, as stored, in bytes.
	maxMessage = 1 << 10
	// maxGroupValues bounds the names in an OperatorGroup, including its status.
	maxGroupValues = 65_536
	// maxConfigValues and maxConfigBytes bound spec.config of a Subscription, which is kept as a whole; maxConfigFault
	// bounds the text about one that cannot be read, in bytes.
	maxConfigValues = 2048
	maxConfigBytes  = 16 << 10
	maxConfigFault  = 200
	// maxReportedValues and maxReportedBytes bound lists that are only reported on: the conditions of a Subscription,
	// and the install modes of a ClusterServiceVersion.
	maxReportedValues = 1024
	maxReportedBytes  = 64 << 10
	// maxStoredDeployments bounds the Deployments of one operator, of which those in use have a dozen; maxUnmet the
	// requirements that it does not meet, of which the first are shown, and maxUnmetText each of them, in bytes.
	maxStoredDeployments = 1000
	maxUnmet             = 5
	maxUnmetText         = 500
	// maxConditionValues bounds each list of conditions in an OperatorCondition or an InstallPlan. One condition has
	// six values.
	maxConditionValues = 4096
)

func tooLargeToReport(raw []byte) bool {
	n, _ := apijson.Measure(raw)
	return n > maxReportedValues || len(raw) > maxReportedBytes
}
