package check

import (
	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/snapshot"
)

// sourceRequires are the fields in spec that OLM's schema requires of a CatalogSource.
var sourceRequires = []string{"sourceType"}

// readCatalogSource reads a CatalogSource, which is judged and is context for others.
func readCatalogSource(raw []byte, o *object) []fieldFault {
	faults := append(unknownFields(raw, &operatorsv1alpha1.CatalogSource{}), missing(raw, sourceRequires)...)
	var source olm.WrittenCatalogSource
	return append(faults, readSource(raw, &source, snapshot.CatalogSources, o, func() { o.source = &source }, len(faults) > 0)...)
}

// readOperatorGroup reads an OperatorGroup, which is judged and is context for others.
func readOperatorGroup(raw []byte, o *object) []fieldFault {
	faults := unknownFields(raw, &operatorsv1.OperatorGroup{})
	var group olm.WrittenOperatorGroup
	return append(faults, readSource(raw, &group, snapshot.OperatorGroups, o, func() { o.group = &group }, len(faults) > 0)...)
}

// readSource decodes an object into what is judged of it, and reads it as context.
func readSource(raw []byte, into any, k *snapshot.Kind, o *object, judged func(), faulty bool) []fieldFault {
	if faults := reader(k)(raw, o); len(faults) > 0 && !faulty {
		return faults
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, into); err != nil {
		if faulty {
			return nil
		}
		return orFault(nil, err)
	}
	judged()
	return nil
}

// judgeSource judges a CatalogSource or an OperatorGroup. Who will write it is not known, nor whether it is stored already.
func judgeSource(o *object, ns *rules.Namespace) rules.Verdict {
	if o.source != nil {
		return rules.JudgeCatalogSource(rules.CatalogSourceInput{New: o.source, Namespace: ns, UserUnknown: true})
	}
	return rules.JudgeOperatorGroup(rules.OperatorGroupInput{New: o.group, Namespace: ns, UserUnknown: true, Stored: true})
}
