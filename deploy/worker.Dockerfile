# The worker as a container, for worker.bicep or any container platform. docs/worker.md says how to build it.
# The context is the unpacked package and nothing else, so the image has what a Function App would get.
# The base has certificates of authorities, time zones and /tmp, and neither a shell nor a package manager.
FROM gcr.io/distroless/static:nonroot

# root owns the files, so the worker cannot change them.
COPY --chmod=755 . /app/

# The worker reads the app folder in the working directory. It is the first process, so it gets SIGTERM itself.
WORKDIR /app
ENTRYPOINT ["/app/async-caller", "work"]

# The user nonroot of the base, by its number, so that a platform can see that it is not root.
USER 65532:65532
