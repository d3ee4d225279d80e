// A page that was opened from a folder (file:) may start no worker, and the search is one. Its script runs in a frame then.
// Both generators recognise this file by its name. Otherwise they would load one from another server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #loaded;

    constructor(address) {
      super();
      this.#frame.hidden = true;
      this.#frame.srcdoc = "<!doctype html><title>Search</title>";
      this.#loaded = new Promise((resolve, reject) => {
        this.#frame.onload = () => {
          const scope = this.#frame.contentWindow;
          scope.postMessage = (data) => this.#tell(new MessageEvent("message", { data }));
          const script = scope.document.createElement("script");
          script.src = address;
          script.onload = () => resolve(scope);
          script.onerror = reject;
          scope.document.head.append(script);
        };
      });
      document.body.append(this.#frame);
    }

    postMessage(data) {
      this.#loaded.then(
        (scope) => scope.dispatchEvent(new MessageEvent("message", { data })),
        () => this.#tell(new ErrorEvent("error")),
      );
    }

    terminate() {
      this.#frame.remove();
    }

    #tell(event) {
      this[`on${event.type}`]?.(event);
      this.dispatchEvent(event);
    }
  };
}
