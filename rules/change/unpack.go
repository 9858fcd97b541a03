package change

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"

	"github.com/opgate/opgate/internal/apijson"
	"github.com/opgate/opgate/internal/metakey"
	"github.com/opgate/opgate/internal/text"
	"github.com/opgate/opgate/internal/yamlsize"
)

// gzipBase64 is the value of the annotation by which the unpack Job says that binaryData has the manifests.
const gzipBase64 = "gzip+base64"

// Unpack returns the manifests in a ConfigMap that OLM unpacked a bundle to, from the ConfigMap's JSON. It reads what
// OLM reads (package configmap of operator-registry): data, or binaryData if the annotation says so; of each entry the
// first document; and only entries with a kind, which those of the bundle's metadata do not have. An entry that is not
// YAML or JSON is an error, although OLM skips it.
func Unpack(configMap []byte) ([]json.RawMessage, error) {
	if n, _ := apijson.Measure(configMap); n > maxObjects || len(configMap) > maxBytes {
		return nil, fmt.Errorf("the ConfigMap has %d values in %d bytes, at most %d values in %d bytes are read", n,
			len(configMap), maxObjects, maxBytes)
	}
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Data       map[string]string `json:"data"`
		BinaryData map[string][]byte `json:"binaryData"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(configMap, &object); err != nil {
		return nil, fmt.Errorf("the ConfigMap cannot be read: %w", err)
	}
	entries := make(map[string][]byte, len(object.Data)+len(object.BinaryData))
	if object.Metadata.Annotations[metakey.ContentEncoding] == gzipBase64 {
		if err := inflate(entries, object.BinaryData); err != nil {
			return nil, err
		}
	} else {
		for name, entry := range object.Data {
			entries[name] = []byte(entry)
		}
	}
	return decodeEntries(entries)
}

// inflate decompresses entries, which share the budget of maxBytes.
func inflate(into, entries map[string][]byte) error {
	left := int64(maxBytes)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(entries[name])))
		if err != nil {
			return fmt.Errorf("%s of the ConfigMap cannot be decompressed: %w", text.Name(name), err)
		}
		plain, err := io.ReadAll(io.LimitReader(r, left+1))
		if err != nil {
			return fmt.Errorf("%s of the ConfigMap cannot be decompressed: %w", text.Name(name), err)
		}
		if left -= int64(len(plain)); left < 0 {
			return fmt.Errorf("the ConfigMap has more than %d bytes when decompressed, which are not read", maxBytes)
		}
		into[name] = plain
	}
	return nil
}

func decodeEntries(entries map[string][]byte) ([]json.RawMessage, error) {
	var manifests []json.RawMessage
	left := maxBytes
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		raw, err := firstDocument(entries[name], left)
		if err != nil {
			return nil, fmt.Errorf("%s of the ConfigMap cannot be read: %w", text.Name(name), err)
		}
		var object struct {
			Kind string `json:"kind"`
		}
		if kjson.UnmarshalCaseSensitivePreserveInts(raw, &object) != nil || object.Kind == "" {
			continue // a file of the bundle's metadata
		}
		left -= len(raw)
		manifests = append(manifests, raw)
	}
	return manifests, nil
}

// firstDocument returns the first document of YAML or JSON as JSON. A document larger than most, when its aliases are
// replaced, is an error.
func firstDocument(entry []byte, most int) (json.RawMessage, error) {
	if err := yamlsize.CheckAliases(entry, most); err != nil {
		return nil, err
	}
	// The same decoder as OLM uses, with the same buffer, since that decides between JSON and YAML.
	var raw json.RawMessage
	switch err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(entry), 30).Decode(&raw); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	case len(raw) > most:
		return nil, fmt.Errorf("it has %d bytes as JSON, at most %d are read", len(raw), most)
	}
	return raw, nil
}

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
