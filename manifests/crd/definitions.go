// Package crd has the definitions of Opgate's kinds, which controller-gen writes.
package crd

import "embed"

// Definitions are the CustomResourceDefinitions, one a file.
//
//go:embed *.yaml
var Definitions embed.FS
