package check

import (
	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// sourceRequires are the fields in spec that OLM's schema requires of a CatalogSource.
var sourceRequires = []string{"sourceType"}

// readCatalogSource reads a CatalogSource, which is judged and is context for others.
func readCatalogSource(raw []byte, o *object) []fieldFault {
	faults := append(unknownFields(raw, &operatorsv1alpha1.CatalogSource{}), missing(raw, sourceRequires)...)
	var source olm.CatalogSource
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &source); err != nil {
		return orFault(faults, err)
	}
	o.source = &source
	o.identify(&source.Metadata)
	return faults
}

// readOperatorGroup reads an OperatorGroup, which is judged and is context for others.
func readOperatorGroup(raw []byte, o *object) []fieldFault {
	faults := unknownFields(raw, &operatorsv1.OperatorGroup{})
	var group olm.OperatorGroup
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &group); err != nil {
		return orFault(faults, err)
	}
	o.group = &group
	o.identify(&group.Metadata)
	return faults
}

// judgeSource judges a CatalogSource or an OperatorGroup. Who will write it is not known, nor whether it is stored already.
func judgeSource(o *object, ns *rules.Namespace) rules.Verdict {
	if o.source != nil {
		return rules.JudgeCatalogSource(rules.CatalogSourceInput{New: o.source, Namespace: ns, UserUnknown: true})
	}
	return rules.JudgeOperatorGroup(rules.OperatorGroupInput{New: o.group, Namespace: ns, UserUnknown: true, Stored: true})
}
