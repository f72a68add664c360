# The tidings binary in a small image, not run as root.
#
#     docker build -t tidings .
#     docker run --rm tidings demo

ARG RUST=1.95

FROM rust:${RUST}-slim-bookworm AS build
WORKDIR /src
COPY . .
# The caches hold downloaded crates and compiled dependencies from one build to the next; being mounts, they
# are not part of a layer, so the binary is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin tidings && cp target/release/tidings /tidings

FROM debian:bookworm-slim
# The certificates are for providers' HTTPS and MongoDB's TLS. Time zones are inside the binary.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
# Made here, so that a volume mounted there is theirs too.
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin tidings \
    && install -d -o tidings -g tidings /data /data/outbox
COPY --from=build /tidings /usr/local/bin/tidings
USER tidings
# Where tidings.toml is looked for, and where the embedded store and the outbox go.
WORKDIR /data
VOLUME /data
ENV TIDINGS_SERVER_LISTEN=0.0.0.0:8080
EXPOSE 8080
ENTRYPOINT ["tidings"]
CMD ["serve"]
