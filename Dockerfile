# The image of releases. `make image` builds the same without a container engine; docs/image.md has both.
# Needs BuildKit (Docker 23 or later) or buildah, which set BUILDPLATFORM, TARGETOS and TARGETARCH:
#
#   docker buildx build --platform linux/amd64,linux/arm64,linux/ppc64le,linux/s390x --build-arg VERSION=v0.1.0 -t registry.example.com/opgate:v0.1.0 .

# For a release, name the base by digest: BASE=gcr.io/distroless/static:nonroot@sha256:...
ARG BASE=gcr.io/distroless/static:nonroot

# The compiler runs on the machine's own platform and compiles for the target's.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
# A layer of its own: modules are downloaded again only when these two files change.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=devel
# "certified" builds with a validated Go Cryptographic Module, in FIPS 140-3 mode.
ARG GOFIPS140=off
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH GOFLAGS=-buildvcs=false GOAMD64=v1 GOARM64=v8.0 GOFIPS140=$GOFIPS140 \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /out/opgate-server ./cmd/opgate-server

FROM $BASE
COPY --from=build --chmod=0555 /out/opgate-server /opgate-server
ARG VERSION=devel
ARG REVISION=""
ARG CREATED="1970-01-01T00:00:00Z"
LABEL org.opencontainers.image.title="opgate" \
      org.opencontainers.image.description="An admission gate for operators installed by the Operator Lifecycle Manager" \
      org.opencontainers.image.source="https://github.com/opgate/opgate" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED"
USER 65532:65532
ENTRYPOINT ["/opgate-server"]
CMD ["serve"]
