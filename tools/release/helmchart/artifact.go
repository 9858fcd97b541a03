package helmchart

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/opgate/opgate/tools/release/oci"
)

// RepositoryTag is the tag under which Artifact Hub looks for what a repository states about itself.
const RepositoryTag = "artifacthub.io"

// Artifact makes a packaged chart an artifact, by pushing it with helm to a registry inside this process, and calls use
// with it while that registry exists. The time of the artifact is that of the file.
func (h Helm) Artifact(ctx context.Context, file, version string, use func(v1.Image) error) error {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	if err := h.run(ctx, "push", file, "oci://"+host, "--plain-http"); err != nil {
		return err
	}
	tag, err := name.NewTag(host + "/opgate:" + version)
	if err != nil {
		return err
	}
	img, err := remote.Image(tag, remote.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("read the pushed chart: %w", err)
	}
	return use(img)
}

// Repository is the file artifacthub-repo.yml as the artifact in which Artifact Hub expects it.
func Repository(file string) (v1.Image, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return oci.Artifact{
		Config:   "application/vnd.cncf.artifacthub.config.v1+yaml",
		Data:     data,
		DataType: "application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml",
	}.Image()
}
