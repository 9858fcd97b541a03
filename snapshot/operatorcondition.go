package snapshot

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// notUpgradeable is why a ClusterServiceVersion must not be replaced now.
type notUpgradeable struct{ csv, why string }

// decodeOperatorCondition retains nothing of an operator that may be replaced.
func decodeOperatorCondition(raw []byte) (any, error) {
	c, err := olm.Decode[olm.OperatorCondition](raw)
	if err != nil {
		return nil, err
	}
	if why := c.NotUpgradeable(); why != "" {
		return &notUpgradeable{c.Metadata.Name, why}, nil
	}
	return nil, nil
}

// salvageOperatorCondition retains one that does not decode as that of an operator that must not be replaced.
func salvageOperatorCondition(m *metav1.ObjectMeta, _ []byte, _ error) any {
	return &notUpgradeable{m.Name, "it cannot be read"}
}

func addOperatorCondition(to *rules.Cluster, in string, value any) {
	c := value.(*notUpgradeable)
	to.AddNotUpgradeable(in, c.csv, c.why)
}
