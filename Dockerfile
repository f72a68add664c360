# Builds an image with the static binary and certificates, and nothing else. It runs without root,
# also with a read-only root file system.
#
#     docker build -t tidings --build-arg COMMIT="$(git rev-parse HEAD)" .
#     docker run --rm tidings demo

ARG RUST=1.95

FROM rust:${RUST}-slim-bookworm AS build
ARG COMMIT=unknown
WORKDIR /src
COPY . .
# The cache mounts keep downloaded crates and compiled dependencies between builds. Mounts are not part of a
# layer, so the binary is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    target=$(uname -m)-unknown-linux-gnu && \
    RUSTFLAGS="-C target-feature=+crt-static" TIDINGS_BUILD_TARGET=$target TIDINGS_BUILD_COMMIT=$COMMIT \
        cargo build --release --locked --bin tidings --target "$target" && \
    deploy/image/root "target/$target/release/tidings" /image

# `scripts/test image` builds from here on, with the binary of scripts/release.
FROM scratch
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="tidings" \
      org.opencontainers.image.description="Notification feeds and email digests on MongoDB or SQLite" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.revision="${COMMIT}"
COPY --from=build /image/root /
# tidings reads tidings.toml from here, and writes the SQLite store and the outbox here. Docker gives a new
# volume the owner of the folder that it is mounted on.
COPY --from=build --chown=10001:10001 /image/data /data
USER 10001:10001
WORKDIR /data
VOLUME /data
ENV TIDINGS_SERVER_LISTEN=0.0.0.0:8080
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/usr/bin/tidings", "health"]
ENTRYPOINT ["/usr/bin/tidings"]
CMD ["serve"]
