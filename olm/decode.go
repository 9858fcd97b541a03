package olm

import (
	"fmt"

	"github.com/opgate/opgate/internal/apijson"
)

// DecodeSubscription reads the JSON of a Subscription.
func DecodeSubscription(raw []byte) (*Subscription, error) { return decodeObject[Subscription](raw) }

// DecodePlan reads the JSON of an InstallPlan; one with more values than maxPlanValues is an error.
func DecodePlan(raw []byte) (*InstallPlan, error) {
	if n, _ := apijson.Measure(raw); n > maxPlanValues {
		return nil, fmt.Errorf("the InstallPlan holds %d values, at most %d are read", n, maxPlanValues)
	}
	return decodeObject[InstallPlan](raw)
}

func decodeObject[T any](raw []byte) (*T, error) {
	into := new(T)
	if err := apijson.Unmarshal(raw, into); err != nil {
		return nil, fmt.Errorf("decode %T: %w", *into, err)
	}
	return into, nil
}

// DecodeCSV reads the JSON of a ClusterServiceVersion.
func DecodeCSV(raw []byte) (*CSV, error) { return decodeObject[CSV](raw) }

// DecodeOperatorCondition reads the JSON of an OperatorCondition.
func DecodeOperatorCondition(raw []byte) (*OperatorCondition, error) {
	return decodeObject[OperatorCondition](raw)
}

// DecodeCatalogSource reads the JSON of a CatalogSource.
func DecodeCatalogSource(raw []byte) (*CatalogSource, error) { return decodeObject[CatalogSource](raw) }

// DecodeOperatorGroup reads the JSON of an OperatorGroup.
func DecodeOperatorGroup(raw []byte) (*OperatorGroup, error) { return decodeObject[OperatorGroup](raw) }

// DecodeClusterExtension reads the JSON of a ClusterExtension.
func DecodeClusterExtension(raw []byte) (*ClusterExtension, error) {
	return decodeObject[ClusterExtension](raw)
}

// DecodeClusterCatalog reads the JSON of a ClusterCatalog.
func DecodeClusterCatalog(raw []byte) (*ClusterCatalog, error) {
	return decodeObject[ClusterCatalog](raw)
}
