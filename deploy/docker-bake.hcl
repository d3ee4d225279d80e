// Builds the image for all platforms, with an SBOM and provenance, from the root of the repository:
//
//   docker buildx bake --file deploy/docker-bake.hcl                     # for this machine, into its engine
//   docker buildx bake --file deploy/docker-bake.hcl --print release     # what a release would do
//   SFN_REGISTRY=ghcr.io/OWNER SOURCE=https://github.com/OWNER/REPOSITORY REVISION=$(git rev-parse HEAD) \
//     SOURCE_DATE_EPOCH=$(git log -1 --pretty=%ct) docker buildx bake --file deploy/docker-bake.hcl --push release
//
// A release needs a builder of the driver `docker-container` (`docker buildx create --use`), and QEMU or a native node for
// the other platform. Two builds of one commit with one version of BuildKit have the same digests for each platform.

variable "VERSION" {
  description = "Version of the project; the same as in pyproject.toml."
  default     = "0.1.0"
}

variable "SFN_REGISTRY" {
  description = "Registry and owner before the image's name; empty for a local name."
  default     = ""
}

variable "REVISION" {
  description = "Commit that is built."
  default     = ""
}

variable "SOURCE_DATE_EPOCH" {
  description = "Time of the commit in seconds since 1970, for all files of the image; empty for the time of the build."
  default     = ""
}

variable "SOURCE" {
  description = "URL of the repository."
  default     = ""
}

variable "DOCUMENTATION" {
  description = "URL of the documentation; empty for the folder docs of the repository."
  default     = ""
}

variable "CACHE" {
  description = "Cache of the builder, such as type=gha; empty for none beside the builder's own."
  default     = ""
}

function "name" {
  params = []
  result = SFN_REGISTRY == "" ? "iceberg-sfn" : "${SFN_REGISTRY}/iceberg-sfn"
}

// Labels and arguments without a value are left out.
function "given" {
  params = [pairs]
  result = { for key, value in pairs : key => value if value != "" }
}

group "default" {
  targets = ["image"]
}

target "image" {
  context    = "."
  dockerfile = "Dockerfile"
  tags       = ["${name()}:${VERSION}"]
  args       = given({ SOURCE_DATE_EPOCH = SOURCE_DATE_EPOCH })
  labels = given({
    "org.opencontainers.image.version"       = VERSION
    "org.opencontainers.image.revision"      = REVISION
    "org.opencontainers.image.created"       = SOURCE_DATE_EPOCH == "" ? "" : timeadd("1970-01-01T00:00:00Z", "${SOURCE_DATE_EPOCH}s")
    "org.opencontainers.image.source"        = SOURCE
    "org.opencontainers.image.documentation" = DOCUMENTATION != "" ? DOCUMENTATION : (SOURCE != "" ? "${SOURCE}/tree/v${VERSION}/docs" : "")
  })
}

target "release" {
  inherits  = ["image"]
  platforms = ["linux/amd64", "linux/arm64"]
  // 0.1.0, 0.1 and latest.
  tags = [
    "${name()}:${VERSION}",
    "${name()}:${join(".", slice(split(".", VERSION), 0, 2))}",
    "${name()}:latest",
  ]
  attest = [
    { type = "sbom" },
    { type = "provenance", mode = "max" },
  ]
  cache-from = CACHE == "" ? [] : [CACHE]
  cache-to   = CACHE == "" ? [] : ["${CACHE},mode=max"]
  // Files of packages get the time of the commit too.
  output = ["type=image,push=false,rewrite-timestamp=true"]
}
