package change

import (
	"encoding/json"
	"fmt"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/text"
)

// Limits of what is read of one bundle, which comes from any catalog, or from a ConfigMap that a tenant may write.
// Contents beyond a limit are a Fault, except where a coarser comparison remains.
const (
	// maxBytes bounds all manifests of a bundle, after decompression. A ConfigMap holds 1 MiB, which compresses
	// manifests some ten times.
	maxBytes = 16 << 20
	// maxValues bounds their JSON values, as apijson.Measure counts them.
	maxValues = 1 << 20
	// maxObjects bounds the number of objects.
	maxObjects = 4096
	// maxDepth bounds the nesting of objects and lists.
	maxDepth = 128
	// maxVersions bounds the versions of a CustomResourceDefinition, and maxServed those that are compared with each
	// other.
	maxVersions, maxServed = 64, 8
	// maxText bounds the text of a Difference, a Note and a Fault, in bytes.
	maxText = 400
	// maxPerClass bounds the differences of a class; the rest is counted in one line.
	maxPerClass = 200
	// maxListed bounds the names that a text lists.
	maxListed = 8
)

// checkSize reports the first limit that manifests exceed.
func checkSize(manifests []json.RawMessage) error {
	if len(manifests) > maxObjects {
		return fmt.Errorf("there are %d manifests, at most %d are read", len(manifests), maxObjects)
	}
	size, values := 0, 0
	for i, raw := range manifests {
		if size += len(raw); size > maxBytes {
			return fmt.Errorf("the manifests have more than the %d bytes that are read", maxBytes)
		}
		held, depth := apijson.Measure(raw)
		if values += held; values > maxValues {
			return fmt.Errorf("the manifests have more than the %d values that are read", maxValues)
		}
		if depth > maxDepth {
			return fmt.Errorf("manifest %d is nested %d levels deep, at most %d are read", i, depth, maxDepth)
		}
	}
	return nil
}

// line returns the text of a Difference.
func line(format string, args ...any) string {
	return text.Truncate(fmt.Sprintf(format, args...), maxText)
}
