// The search of a page that is opened from a folder. A browser starts no worker there, so the script of the worker runs in
// a hidden frame instead. The name of this file tells Zensical that it needs no other script for this purpose.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      // The script calls postMessage to answer. In a frame, this function would send the message to the frame itself.
      inside.postMessage = (data) => setTimeout(() => this.answer(new MessageEvent("message", { data: structuredClone(data) })));
      this.loaded = new Promise((resolve) => {
        const script = inside.document.createElement("script");
        script.src = new URL(url, location);
        script.onload = resolve;
        script.onerror = () => this.answer(new ErrorEvent("error", { message: `${url}: cannot be loaded` }));
        inside.document.body.append(script);
      });
    }
    answer(event) {
      this[`on${event.type}`]?.(event);
      this.dispatchEvent(event);
    }
    postMessage(data) {
      const message = new MessageEvent("message", { data: structuredClone(data) });
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(message));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
